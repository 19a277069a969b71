"""When a call is late, and whether another copy of it is worth starting. Pure.

- A call is late when it has taken longer than 95 % of the latest calls of its kind: then one in
  twenty gets a second copy, and what is stuck is found in the time of an ordinary call.
- Copies are paid from a budget that calls fill: when everything becomes slow, a second copy of
  everything would only make it slower.
"""

from artangram.core.durations import Durations

QUANTILE = 0.95
LEAST_SEEN, MOST_SEEN = 20, 200
"""The number of calls from which a quantile means something, and the number remembered."""
COPIES_PER_CALL, MOST_SAVED = 0.1, 10.0


def call_durations() -> Durations:
    """For the calls of one kind; one that takes longer than `QUANTILE` of them is late."""
    return Durations(least=LEAST_SEEN, most=MOST_SEEN)


class Budget:
    """What may be spent on second copies."""

    __slots__ = ("_saved",)

    def __init__(self) -> None:
        self._saved = MOST_SAVED

    def earn(self) -> None:
        """A call began."""
        self._saved = min(MOST_SAVED, self._saved + COPIES_PER_CALL)

    def spend(self) -> bool:
        """May a second copy start? Then it is paid."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
