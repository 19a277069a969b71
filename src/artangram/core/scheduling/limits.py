"""How fast a time limit passes: with what a program is given, not with the clock.

On an idle node an elastic program has all the cores it can use for as long as its limit says. So a
second on fewer cores counts as a smaller part of a second, and one without cores does not count at
all. A program that ends within its limit on an idle node ends within it on a busy one: what it
does in a core-second is no less on few cores than on many, and what a squeeze costs is left out.
"""

from collections.abc import Mapping

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import CpuSpec, PoolSpec
from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.width import fixed_widths
from artangram.core.scheduling.speedup import DEFAULT


def pace(
    ticket: Ticket, allocation: Allocation, workers: int, pools: Mapping[Resource, PoolSpec]
) -> float:
    """Seconds of its limit that pass for `ticket` in one second on `allocation`.

    With the clock, where it has no limit or shares what it runs on with others.
    """
    if not isinstance(allocation, Cores) or ticket.action.timeout_s is None:
        return 1.0
    form, units = ticket.form, allocation.units
    if not form.is_elastic:
        return 1.0 if units else 0.0
    spec = pools[allocation.resource]
    assert isinstance(spec, CpuSpec), f"{allocation.resource} has no cores"
    most = fixed_widths(form.amounts, ticket.curve or DEFAULT).best(0.0)
    counted = units if units >= workers else units * (1.0 - spec.squeeze_penalty)
    return min(1.0, counted / most)
