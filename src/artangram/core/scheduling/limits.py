"""How fast a time limit passes: with what a program is given, not with the clock.

On an idle node an elastic program has all the cores it can use for as long as its limit says. So a
second on fewer cores counts as a smaller part of a second, and one without cores does not count at
all. A program that ends within its limit on an idle node ends within it on a busy one: what it
does in a core-second is no less on few cores than on many, and what a squeeze costs is left out.
"""

from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.width import fixed_widths
from artangram.core.scheduling.speedup import DEFAULT


def pace(ticket: Ticket, units: int, *, workers: int, penalty: float) -> float:
    """Seconds of its limit that pass for `ticket` in one second on `units` cores."""
    form = ticket.form
    if not form.is_elastic:
        return 1.0 if units else 0.0
    most = fixed_widths(form.amounts, ticket.curve or DEFAULT).best(0.0)
    counted = units if units >= workers else units * (1.0 - penalty)
    return min(1.0, counted / most)
