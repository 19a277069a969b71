"""Parents that wait for their children never wait for ever."""

import random

import pytest
from builders import a_cluster, a_cpu, an_action, records, reported, started

from artangram.core.ids import JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling import placement
from artangram.core.scheduling.events import (
    Finished,
    NodeDraining,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler


def a_pool(memory_mb: int = 1000, nodes: int = 1) -> Scheduler:
    cluster = a_cluster(cpu=a_cpu(nodes=nodes, cores=8, memory_mb=memory_mb))
    return Scheduler(cluster, policy("elastic"))


def begin(scheduler: Scheduler, name: str, memory_mb: int = 500, parent: str | None = None) -> list:
    of = None if parent is None else TrajectoryId(parent)
    opened = TrajectoryOpened(TrajectoryId(name), memory_mb, JobId("x"), parent=of)
    scheduler.handle(opened, 0.0)
    return scheduler.handle(Submitted(an_action(f"{name}!", trajectory=name, job="x")), 0.0)


def end(scheduler: Scheduler, name: str, now: float = 1.0) -> list:
    out = scheduler.handle(Finished(f"{name}!"), now)
    out += scheduler.handle(TrajectoryClosed(TrajectoryId(name)), now)
    return out + scheduler.handle(TrajectoryGone(TrajectoryId(name)), now)


def test_the_youngest_child_is_refused_when_all_memory_waits_for_children():
    scheduler = a_pool()
    begin(scheduler, "p")
    begin(scheduler, "q")
    assert reported(begin(scheduler, "p1", parent="p")) == {}
    out = begin(scheduler, "q1", parent="q")
    assert reported(out) == {"q1!": "refused"}
    assert "waits for one that waits for memory" in records(out)[0].reason
    assert started(end(scheduler, "q")) == ["p1!"]


def test_a_child_waits_while_anything_else_may_end():
    scheduler = a_pool()
    begin(scheduler, "p")
    begin(scheduler, "other")
    assert reported(begin(scheduler, "p1", parent="p")) == {}
    assert started(end(scheduler, "other")) == ["p1!"]


def test_a_grandchild_holds_up_its_whole_family():
    scheduler = a_pool()
    begin(scheduler, "p")
    assert started(begin(scheduler, "c", parent="p")) == ["c!"]
    assert reported(begin(scheduler, "g", parent="c")) == {"g!": "refused"}


def test_a_sandbox_that_goes_is_waited_for():
    scheduler = a_pool()
    begin(scheduler, "p")
    begin(scheduler, "q")
    scheduler.handle(Finished("q!"), 1.0)
    scheduler.handle(TrajectoryClosed(TrajectoryId("q")), 1.0)
    assert reported(begin(scheduler, "p1", parent="p")) == {}
    assert started(scheduler.handle(TrajectoryGone(TrajectoryId("q")), 2.0)) == ["p1!"]


def test_what_holds_nothing_cannot_free_anything():
    scheduler = a_pool()
    begin(scheduler, "empty", memory_mb=0)
    begin(scheduler, "p", memory_mb=1000)
    assert reported(begin(scheduler, "p1", parent="p")) == {"p1!": "refused"}


def test_nodes_that_drain_are_waited_for():
    scheduler = a_pool()
    scheduler.handle(NodeDraining(Resource("cpu"), NodeId("cpu-0")), 0.0)
    assert reported(begin(scheduler, "c", parent="nobody")) == {}


def test_a_parent_that_is_unknown_or_holds_nothing_stops_nothing():
    scheduler = a_pool()
    begin(scheduler, "other", memory_mb=1000)
    assert reported(begin(scheduler, "c", parent="nobody")) == {}
    assert started(end(scheduler, "other")) == ["c!"]


def families(seed: int) -> int:
    """Random families on two small nodes; a parent ends when its children have. How many ended?"""
    rng, scheduler = random.Random(seed), a_pool(nodes=2)
    children: dict[str, set[str]] = {}
    parent_of: dict[str, str | None] = {}
    running: set[str] = set()
    over: set[str] = set()

    def note(out: list) -> None:
        running.update(name[:-1] for name in started(out))
        for name, outcome in reported(out).items():
            if outcome == "refused":
                note_over(name[:-1])

    def note_over(name: str) -> None:
        over.add(name)
        running.discard(name)
        for mine in children.values():
            mine.discard(name)

    def born(name: str, parent: str | None) -> None:
        children[name], parent_of[name] = set(), parent
        if parent is not None:
            children[parent].add(name)
        note(begin(scheduler, name, rng.choice([200, 400, 600]), parent))

    for number in range(12):
        parents = [name for name in sorted(running) if rng.random() < 0.7]
        born(f"t{number}", rng.choice(parents) if parents else None)
    for now in range(1, 100):
        ready = sorted(name for name in running if not children[name])
        if not ready:
            break
        note_over(ready[0])
        note(end(scheduler, ready[0], float(now)))
    assert len(over) == 12, f"{sorted(set(children) - over)} wait for ever"
    return len(over)


@pytest.mark.parametrize("seed", range(30))
def test_every_family_ends(seed):
    assert families(seed) == 12


def all_families() -> None:
    for seed in range(30):
        families(seed)


def test_the_families_catch_parents_that_are_forgotten(monkeypatch):
    monkeypatch.setattr(placement, "stuck", lambda *args, **more: [])
    with pytest.raises(AssertionError, match="wait for ever"):
        all_families()
