"""Cores are shared by use: over every minute in which jobs want more than there is, each holds
core-seconds in proportion to its share, whatever its actions take and whatever callers say of it.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from scheduler_world import examples
from sim_support import a_cpu_cluster, a_trace, a_trajectory, a_turn, an_action, an_elastic_action

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.decisions import Decision, Report, Resize, Start
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.policies.ranking import CoreUse, _JobUse
from artangram.observe.trace import TraceAction, TraceTrajectory
from artangram.sim.beliefs import Beliefs, ExactBeliefs, beliefs
from artangram.sim.driver import Simulation

CORES = 8
WINDOW_S = 60.0
STRIDE_S = 4.0


class Metered(Simulation):
    """Adds up the core-seconds of every job, at every stride."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self._held: dict[ActionId, int] = {}
        self._used: dict[JobId, float] = {}
        self._counted_at = 0.0
        self.history: list[dict[JobId, float]] = []
        #: When a job began to want less than all the cores.
        self.sated_at = float("inf")

    def _carry_out(self, decision: Decision, now: float) -> None:
        self._count(now)
        match decision:
            case Start(lease):
                self._held[lease.action_id] = lease.allocations[0].units
            case Resize(action_id, cores, _):
                self._held[action_id] = cores.units
            case Report(record):
                self._held.pop(record.action_id, None)
        super()._carry_out(decision, now)

    def _count(self, now: float) -> None:
        while self._counted_at < now:
            stride_at = STRIDE_S * (len(self.history) + 1)
            until = min(now, stride_at)
            for action_id, units in self._held.items():
                job = self._lives[action_id][0].trajectory.job
                self._used[job] = self._used.get(job, 0.0) + units * (until - self._counted_at)
            self._counted_at = until
            if until == stride_at:
                self.history.append(dict(self._used))

    def _end_trajectory(self, trajectory: TraceTrajectory, now: float) -> None:
        if self._jobs[trajectory.job].going <= CORES:
            self.sated_at = min(self.sated_at, now)
        super()._end_trajectory(trajectory, now)

    def windows(self, since: float) -> list[dict[JobId, float]]:
        """What each job used in every minute from `since` until one of them wanted less."""
        length, history = round(WINDOW_S / STRIDE_S), [{}, *self.history]
        first, last = -int(-since // STRIDE_S), int(self.sated_at // STRIDE_S)
        return [
            {job: used - history[at].get(job, 0.0) for job, used in history[at + length].items()}
            for at in range(first, last - length)
        ]


def a_job(name: str, count: int, turns: int, action: TraceAction, *, arrive_s: float = 0.0) -> list:
    return [
        a_trajectory(
            f"{name}{n}", *[a_turn(0.0, action)] * turns, job=name, task=name, arrive_s=arrive_s
        )
        for n in range(count)
    ]


def metered(
    trajectories: list[TraceTrajectory],
    told: Beliefs,
    *,
    nodes: int = 1,
    shares: dict[JobId, float] | None = None,
) -> Metered:
    cluster = a_cpu_cluster(CORES // nodes, nodes=nodes, squeeze_penalty=0.1)
    cluster = structs.replace(cluster, shares=shares or {})
    simulation = Metered(a_trace(*trajectories), cluster, policy("elastic"), told)
    simulation.run()
    return simulation


def rigid(work_s: float) -> TraceAction:
    return an_action(work_s, kind=f"rigid{work_s:g}")


def elastic(work_s: float) -> TraceAction:
    return an_elastic_action(work_s, 4, serial=0.05, kind=f"elastic{work_s:g}")


KINDS = {"rigid": rigid, "elastic": elastic}
Make = Callable[[float], TraceAction]


def check_equal_use(long: Make, short: Make, told: str, nodes: int) -> None:
    jobs = a_job("long", 16, 3, long(50.0)) + a_job("short", 16, 40, short(2.0))
    windows = metered(jobs, beliefs(told, 0), nodes=nodes).windows(0.0)
    assert len(windows) >= 3
    for used in windows:
        assert max(used.values()) <= 1.1 * min(used.values()), used


@examples(6)
@given(
    long=st.sampled_from(sorted(KINDS)),
    short=st.sampled_from(sorted(KINDS)),
    told=st.sampled_from(["learned", "exact"]),
    nodes=st.sampled_from([1, 2]),
)
def test_equal_shares_use_the_same_over_every_minute(long, short, told, nodes):
    check_equal_use(KINDS[long], KINDS[short], told, nodes)


class Lying(ExactBeliefs):
    """Says that the work of one job is nothing, and the truth about that of others."""

    def work_s(self, action: TraceAction) -> float | None:
        return 0.001 if action.kind == "rigid20" else action.work_s


def test_a_caller_that_lies_about_its_work_gains_nothing():
    jobs = a_job("honest", 16, 10, rigid(10.0)) + a_job("liar", 16, 5, rigid(20.0))
    for used in metered(jobs, Lying()).windows(0.0):
        assert used[JobId("liar")] <= 1.1 * used[JobId("honest")]


def check_second_comer() -> None:
    first = a_job("first", 200, 1, rigid(30.0))
    second = a_job("second", 20, 5, rigid(30.0), arrive_s=41.0)
    shares = {JobId("second"): 10.0}
    windows = metered(first + second, beliefs("exact", 0), shares=shares).windows(41.0)
    assert windows
    for used in windows:
        assert used[JobId("second")] >= 9.0 * used[JobId("first")]


def test_a_job_with_a_large_share_that_comes_second_is_not_behind_the_first():
    check_second_comer()


def by_starts(real: object) -> object:
    """Charge a job for every start, however long it holds what it got."""

    def hold(use: CoreUse, job: JobId, units: int, now: float) -> None:
        real(use, job, units, now)
        use._jobs[job].level += max(0, units)
        use._jobs[job].since = float("inf")

    return hold


def test_charging_by_starts_is_noticed(monkeypatch):
    monkeypatch.setattr(CoreUse, "hold", by_starts(CoreUse.hold))
    with pytest.raises(AssertionError):
        check_equal_use(rigid, rigid, "exact", 1)


def test_never_taking_what_is_owed_is_noticed(monkeypatch):
    monkeypatch.setattr(CoreUse, "lead", lambda *args, **fields: 0.0)
    with pytest.raises(AssertionError):
        check_second_comer()


def test_forgetting_shares_is_noticed(monkeypatch):
    monkeypatch.setattr(_JobUse, "__init__", without_share(_JobUse.__init__))
    with pytest.raises(AssertionError):
        check_second_comer()


def without_share(real: Callable[..., None]) -> Callable[..., None]:
    return lambda use, level, share, now: real(use, level, 1.0, now)
