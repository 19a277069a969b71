"""What a simulation counted: times of actions, steps, failures, cost of deciding.

Memory grows with the number of actions by a few numbers each, never by records.
"""

from array import array
from collections import defaultdict

from artangram.core.ids import JobId
from artangram.core.scheduling.action import ActionRecord, Outcome

_GOOD = {Outcome.SUCCEEDED, Outcome.CANCELLED}
_GIVEN_UP = {Outcome.INFRA_FAILED, Outcome.EXPIRED}
"""Nothing breaks here and no trace has deadlines: only a policy ends an action so."""


class Times:
    """The times of some actions, in seconds."""

    __slots__ = ("act", "overhead", "run", "wait")

    def __init__(self) -> None:
        self.act = array("d")
        self.wait = array("d")
        self.overhead = array("d")
        self.run = array("d")

    def add(self, record: ActionRecord) -> None:
        self.act.append(record.act_s)
        self.wait.append(record.wait_s)
        self.overhead.append(record.overhead_s)
        self.run.append(record.run_s)


class SimTally:
    """Counts while a simulation runs."""

    def __init__(self) -> None:
        self.by_kind: defaultdict[str, Times] = defaultdict(Times)
        self.failed = 0
        #: Of the failed ones, those that could never run; they have no times.
        self.refused = 0
        #: Of the failed ones, those that the policy ended before they were done.
        self.given_up = 0
        self.restores = 0
        self.resizes = 0
        #: Job, step, duration.
        self.steps: list[tuple[JobId, int, float]] = []
        self.decisions_s = array("d")

    def record(self, record: ActionRecord) -> None:
        self.failed += record.outcome not in _GOOD
        self.given_up += record.outcome in _GIVEN_UP
        if record.outcome is Outcome.REFUSED:
            self.refused += 1
        else:
            self.by_kind[record.kind].add(record)

    def num_actions(self) -> int:
        return self.refused + sum(len(times.act) for times in self.by_kind.values())
