"""Memory between jobs and sizes: nobody waits behind a flood, and large ones stop no pool."""

import pytest
from builders import a_cluster, a_cpu, an_action, started
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.ids import ActionId, JobId, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, JobLimits
from artangram.core.scheduling.events import (
    Finished,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler


class Town:
    """Trajectories that do one thing and stay until they are told to go."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self.scheduler = Scheduler(cluster, policy("elastic"))
        self.now = 0.0
        #: Who has a node, in the order they got it, and what they hold.
        self.living: dict[str, tuple[str, int]] = {}
        self._asked: dict[str, tuple[str, int]] = {}

    def come(self, name: str, *, memory_mb: int, job: str = "x") -> None:
        self.now += 0.001
        self._asked[name] = (job, memory_mb)
        opened = TrajectoryOpened(TrajectoryId(name), memory_mb, JobId(job))
        action = an_action(name, trajectory=name, job=job)
        self._tell(opened, Submitted(action))

    def go(self, name: str) -> None:
        self.now += 0.001
        del self.living[name]
        trajectory = TrajectoryId(name)
        self._tell(TrajectoryClosed(trajectory), TrajectoryGone(trajectory))

    def held_mb(self, job: str) -> int:
        return sum(mb for owner, mb in self.living.values() if owner == job)

    def _tell(self, *events: object) -> None:
        for name in started(self.scheduler.handle_all(events, self.now)):
            self.living[name] = self._asked[name]
            self.scheduler.handle(Finished(ActionId(name)), self.now)


def prove_that_large_ones_stop_no_pool(nodes: int, sizes: list[int]) -> None:
    """However often a small one goes and another comes, a large one gets a node of its own."""
    town = Town(a_cluster(cpu=a_cpu(nodes=nodes, cores=64, memory_mb=100)))
    count = 0
    for count in range(nodes * 5):
        town.come(f"s{count}", memory_mb=20)
    for index, size in enumerate(sizes):
        town.come(f"large{index}", memory_mb=size)
    passed = 0
    for turn in range(nodes * 5 * (len(sizes) + 1)):
        town.come(f"new{turn}", memory_mb=20)
        small = [name for name in town.living if not name.startswith("large")]
        if small:
            town.go(small[0])
        passed += f"new{turn}" in town.living
    late = [f"large{index}" for index in range(len(sizes)) if f"large{index}" not in town.living]
    assert not late, f"{late} wait while small ones come and go"
    assert nodes == 1 or passed, "nobody small was served meanwhile"


@given(
    nodes=st.sampled_from([1, 2, 5]),
    sizes=st.lists(st.sampled_from([60, 80, 100]), min_size=1, max_size=1),
)
@examples(20)
def test_a_large_trajectory_stops_one_node_and_not_the_pool(nodes, sizes):
    prove_that_large_ones_stop_no_pool(nodes, sizes)


def prove_that_shares_hold(share: float) -> None:
    town = Town(a_cluster(cpu=a_cpu(cores=64, memory_mb=200), shares={"rich": share}))
    for index in range(200):
        town.come(f"a{index}", memory_mb=10, job="poor")
    for index in range(200):
        town.come(f"b{index}", memory_mb=10, job="rich")
    for _ in range(100):
        town.go(next(iter(town.living)))
    wanted = 200 * share / (1 + share)
    held = town.held_mb("rich")
    assert abs(held - wanted) <= 10, f"{held} of 200 MB are the rich's, not {wanted}"


@pytest.mark.parametrize("share", [1.0, 3.0, 9.0])
def test_jobs_that_flood_hold_memory_in_proportion_to_their_shares(share):
    prove_that_shares_hold(share)


def test_a_newcomer_is_behind_one_and_not_behind_a_flood():
    town = Town(a_cluster(cpu=a_cpu(cores=64, memory_mb=200), shares={"rich": 10.0}))
    for index in range(200):
        town.come(f"a{index}", memory_mb=10, job="poor")
    town.come("b", memory_mb=10, job="rich")
    for _ in range(2):
        town.go(next(iter(town.living)))
    assert "b" in town.living


LIMITED = ClusterSpec(
    pools=a_cluster(cpu=a_cpu(nodes=2, cores=64, memory_mb=100)).pools,
    limits={
        JobId("few"): JobLimits(max_trajectories=2),
        JobId("small"): JobLimits(max_memory_mb=50),
        JobId("sure"): JobLimits(min_memory_mb=60, min_trajectories=1),
    },
)

COMES = st.tuples(st.sampled_from(["few", "small", "sure", "x"]), st.sampled_from([0, 10, 30, 60]))


def prove_that_limits_hold(moves: list[tuple[str, int] | int]) -> None:
    town = Town(LIMITED)
    for number, move in enumerate(moves):
        if isinstance(move, int):
            if town.living:
                town.go(list(town.living)[move % len(town.living)])
            continue
        job, memory_mb = move
        town.come(f"t{number}", memory_mb=memory_mb, job=job)
        few = [name for name, (owner, _) in town.living.items() if owner == "few"]
        assert len(few) <= 2, f"{few} live at once"
        assert town.held_mb("small") <= 50, "the small one holds too much"
        others = sum(mb for owner, mb in town.living.values() if owner != "sure")
        kept = 200 - others - town.held_mb("sure")
        missing = max(0, 60 - town.held_mb("sure"))
        assert kept >= missing, f"{kept} MB are free, {missing} MB are promised"


@given(moves=st.lists(COMES | st.integers(0, 100), max_size=40))
@examples(150)
def test_a_job_gets_at_least_its_minimum_and_at_most_its_maximum(moves):
    prove_that_limits_hold(moves)
