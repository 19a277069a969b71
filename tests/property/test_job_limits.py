"""Cores and calls of jobs: never above a maximum, and a minimum whatever others came first."""

from collections.abc import Iterator

import pytest
from builders import a_cluster, a_cpu, an_action, records
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, JobLimits, QuotaSpec
from artangram.core.scheduling.cpupools import CpuPools
from artangram.core.scheduling.decisions import Resize, Start
from artangram.core.scheduling.events import ClockTicked, Finished, Submitted
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.policies.jobunits import JobUnits
from artangram.core.scheduling.policies.ranking import CoreUse
from artangram.core.scheduling.scheduler import Scheduler
from property.test_planted_bugs import instead

MOST, LEAST, CORES = 3, 4, 8
LIMITS = {
    JobId("few"): JobLimits(max_cores=MOST, max_calls=MOST),
    JobId("sure"): JobLimits(min_cores=LEAST, min_calls=LEAST),
}
CORE_NEEDS = ({"cpu": 1}, {"cpu": 2}, {"cpu": {"min": 1, "max": 4}}, {"search": 1, "cpu": 1})
CALL_NEEDS = ({"search": 1}, {"slots": 1}, {"slots": 1, "search": 1}, {"search": 2})


def a_limited_cluster(nodes: int) -> ClusterSpec:
    pools = a_cluster(
        cpu=a_cpu(nodes=nodes, cores=CORES, squeeze_penalty=0.1),
        search=QuotaSpec(concurrency=CORES),
        slots=FunctionsSpec(ceiling=CORES),
    ).pools
    return ClusterSpec(pools=pools, limits=LIMITS)


class Market:
    """A scheduler, and what its decisions say of what every job holds."""

    def __init__(self, nodes: int = 1) -> None:
        self.scheduler = Scheduler(a_limited_cluster(nodes), policy("elastic"))
        self.now = 0.0
        self.asked: dict[str, tuple[str, dict]] = {}
        #: What each action that has started holds of each pool.
        self.running: dict[str, dict[str, int]] = {}

    def submit(self, name: str, job: str, needs: dict) -> None:
        self.asked[name] = (job, needs)
        elastic = "cpu" if isinstance(needs.get("cpu"), dict) else None
        self._tell(Submitted(an_action(name, needs, job=job, elastic=elastic)))

    def finish(self, number: int) -> None:
        if self.running:
            self._tell(Finished(ActionId(sorted(self.running)[number % len(self.running)])))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self._tell(ClockTicked())

    def held(self, job: str, pool: str) -> int:
        mine = (held for name, held in self.running.items() if self.asked[name][0] == job)
        return sum(held.get(pool, 0) for held in mine)

    def wants(self, job: str, pool: str) -> bool:
        """Has it an action that needs only this pool, and has nothing of it?"""
        return any(
            owner == job and set(needs) == {pool} and not self.running.get(name, {}).get(pool)
            for name, (owner, needs) in self.asked.items()
        )

    def _tell(self, event: object) -> None:
        out = self.scheduler.handle(event, self.now)
        for decision in out:
            if isinstance(decision, Start):
                held = {str(one.resource): one.units for one in decision.lease.allocations}
                self.running[decision.lease.action_id] = held
            elif isinstance(decision, Resize):
                self.running[decision.action_id]["cpu"] = decision.cores.units
        for record in records(out):
            del self.asked[record.action_id]
            self.running.pop(record.action_id, None)


def play(
    moves: list[tuple[str, int, int]], needs: tuple[dict, ...], nodes: int = 1
) -> Iterator[Market]:
    market = Market(nodes)
    for number, (what, which, index) in enumerate(moves):
        if what == "end":
            market.finish(which)
        elif what == "wait":
            market.pass_time(0.1 * which)
        else:
            market.submit(f"a{number}", what, needs[index % len(needs)])
        yield market


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["few", "sure", "x", "x", "end", "wait"]),
        st.integers(0, 30),
        st.integers(0, 3),
    ),
    max_size=60,
)


def prove_that_cores_are_within_limits(moves, nodes: int) -> None:
    for market in play(moves, CORE_NEEDS, nodes):
        held = market.held("few", "cpu")
        assert held <= MOST, f"a job with a maximum of {MOST} cores has {held}"
        if nodes == 1 and market.wants("sure", "cpu") and market.held("sure", "cpu") < LEAST:
            others = market.held("x", "cpu") + held
            assert not others, f"a job waits below its minimum while others have {others} cores"


def prove_that_calls_are_within_limits(moves) -> None:
    for market in play(moves, CALL_NEEDS):
        for pool in ("search", "slots"):
            held, sure = market.held("few", pool), market.held("sure", pool)
            assert held <= MOST, f"a job with a maximum of {MOST} {pool} has {held}"
            left, missing = CORES - held - sure - market.held("x", pool), max(0, LEAST - sure)
            assert left >= missing, f"{left} of {pool} are free, {missing} are promised"


@examples(150)
@given(moves=MOVES, nodes=st.sampled_from([1, 3]))
def test_cores_of_jobs_stay_within_their_limits(moves, nodes):
    prove_that_cores_are_within_limits(moves, nodes)


@examples(150)
@given(moves=MOVES)
def test_calls_of_jobs_stay_within_their_limits(moves):
    prove_that_calls_are_within_limits(moves)


def prove_that_all_that_waits_ends(moves) -> None:
    *_, market = play([("x", 0, 0), *moves], (*CORE_NEEDS, *CALL_NEEDS), nodes=3)
    for _ in range(4 * len(moves) + 4):
        market.finish(0)
        market.pass_time(0.3)
    assert not market.asked, f"{market.asked} never started"


@examples(60)
@given(moves=MOVES)
def test_all_that_waits_within_limits_ends(moves):
    prove_that_all_that_waits_ends(moves)


def test_the_end_catches_a_node_that_is_not_told_of_cores_given_back_elsewhere(monkeypatch):
    instead(CpuPools, "take_eased", lambda real: lambda self: [])(monkeypatch)

    @given(moves=MOVES)
    @examples(1000, is_hunt=True)
    def hunt(moves: list[tuple[str, int, int]]) -> None:
        prove_that_all_that_waits_ends(moves)

    with pytest.raises(AssertionError, match="never started"):
        hunt()


PLANTS = {
    "cores above a maximum": (CoreUse, "is_within", True, "a maximum of 3 cores has"),
    "cores below a minimum": (CoreUse, "is_entitled", False, "waits below its minimum"),
    "calls above a maximum": (JobUnits, "is_within", True, "a maximum of 3"),
    "calls of a minimum that are not kept": (JobUnits, "_leaves_minimums", True, "are promised"),
}


@pytest.mark.parametrize("bug", PLANTS)
def test_random_moves_catch(bug, monkeypatch):
    owner, name, answer, complaint = PLANTS[bug]
    instead(owner, name, lambda real: lambda self, *args: answer)(monkeypatch)

    @given(moves=MOVES)
    @examples(1000, is_hunt=True)
    def hunt(moves: list[tuple[str, int, int]]) -> None:
        if owner is CoreUse:
            prove_that_cores_are_within_limits(moves, 1)
        else:
            prove_that_calls_are_within_limits(moves)

    with pytest.raises(AssertionError, match=complaint):
        hunt()
