"""A rollout that looks at the cluster's line: the line stays short, and as much is done."""

from heapq import heappop, heappush

import pytest
from builders import a_cluster, a_cpu, an_action, started

from artangram.core.ids import ActionId, JobId, TrajectoryId
from artangram.core.rollout.line import EnvironmentBound
from artangram.core.scheduling.events import (
    Finished,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler

JOB = JobId("run")
ENVIRONMENTS, LOOK_S = 256, 1.0


class SmallRun:
    """A rollout that wants many trajectories, on a cluster with memory for few of them."""

    def __init__(self, memory_for: int, *, looks: bool) -> None:
        spec = a_cpu(cores=4 * memory_for, memory_mb=memory_for)
        self.scheduler = Scheduler(a_cluster(cpu=spec), policy("elastic"))
        self.bound = EnvironmentBound(ENVIRONMENTS) if looks else None
        self.now, self.done, self.longest = 0.0, 0, 0
        self._num = self._open = self._waiting = 0
        self._timers: list[tuple[float, str]] = []

    def play(self, until: float) -> None:
        heappush(self._timers, (0.0, ""))
        while self._timers[0][0] < until:
            self.now, name = heappop(self._timers)
            if name:
                self._end(name)
            else:
                self._look()
            self._pump()

    def _look(self) -> None:
        heappush(self._timers, (self.now + LOOK_S, ""))
        if self.bound is not None:
            found = self.scheduler.expected_wait(JOB, self.now)
            assert found.num_trajectories == self._waiting
            wait_s = max(found.memory_s, found.cores_s)
            self.bound.on_line(wait_s=wait_s, num_waiting=self._waiting, in_envs=self._open)

    def _pump(self) -> None:
        most = ENVIRONMENTS if self.bound is None else self.bound.most
        while self._open < most:
            self._num += 1
            self._open += 1
            self._waiting += 1
            name = f"t{self._num}"
            opened = TrajectoryOpened(TrajectoryId(name), 1, JOB)
            self._tell(opened, Submitted(an_action(name, trajectory=name, job=JOB)))
        self.longest = max(self.longest, self._waiting)

    def _end(self, name: str) -> None:
        self.done += 1
        self._open -= 1
        trajectory = TrajectoryId(name)
        gone = (TrajectoryClosed(trajectory), TrajectoryGone(trajectory))
        self._tell(Finished(ActionId(name)), *gone)

    def _tell(self, *events: object) -> None:
        for name in started(self.scheduler.handle_all(events, self.now)):
            self._waiting -= 1
            heappush(self._timers, (self.now + 20.0 + int(name[1:]) % 30, name))


@pytest.mark.parametrize("memory_for", [4, 24, 100])
def test_the_line_stays_short_and_as_much_is_done(memory_for):
    blind, looking = (SmallRun(memory_for, looks=looks) for looks in (False, True))
    for run in (blind, looking):
        run.play(1000.0)
    assert blind.longest == ENVIRONMENTS - memory_for
    assert looking.longest <= max(8, memory_for)
    # It begins with few, and has doubled to what there is room for after some seconds.
    assert looking.done >= 0.98 * blind.done - memory_for / 4


def test_where_there_is_room_for_all_they_are_soon_there():
    run = SmallRun(ENVIRONMENTS, looks=True)
    run.play(7.0)
    assert (run.bound.most, run.longest) == (ENVIRONMENTS, 0)
