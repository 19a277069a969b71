"""The properties about nodes and memory catch bugs: each test plants one and sees one fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from scheduler_machine import machine
from scheduler_world import examples

from artangram.core.scheduling.nodeindex import NodeIndex
from artangram.core.scheduling.placement import Placement
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.unplaced import JobMemory, Unplaced
from property import test_memory_shares
from property.test_planted_bugs import Method, Plant, instead, nothing


def without_labels(real: Method) -> Method:
    return lambda self, selector: real(self, frozenset())


def at_once(real: Method) -> Method:
    """Memory is free as soon as a trajectory is closed."""

    def close(self: Placement, trajectory: str) -> bool:
        self._residents[trajectory].has_sandbox = False
        return real(self, trajectory)

    return close


def whole(real: Method) -> Method:
    """Forget that a node may be smaller than its pool says."""
    return lambda self, resource, node, pool, spec=None, **seq: real(
        self, resource, node, pool, None, **seq
    )


PLANTS: dict[str, tuple[str, Plant, str]] = {
    "a draining node takes trajectories": (
        "fcfs",
        instead(Placement, "drain", nothing),
        "which drains|is let go|Error|is full",
    ),
    "a draining node is let go while somebody is there": (
        "fcfs",
        instead(CpuNode, "is_drained", lambda real: lambda node: node.is_draining),
        "is let go with",
    ),
    "labels are not looked at": (
        "fcfs",
        instead(
            NodeIndex, "__init__", lambda real: lambda self, s, n=(): real(self, frozenset(), n)
        ),
        "asks for",
    ),
    "memory is free before the sandbox is gone": (
        "fcfs",
        instead(Placement, "close", at_once),
        "over-committed|is let go with",
    ),
    "every node is as its pool describes": (
        "fcfs",
        instead(CpuNode, "__init__", whole),
        "has no core|over-committed|asks for|said to be free|Explanation|fits and waits",
    ),
    "who stands behind a larger one is forgotten": (
        "fcfs",
        instead(Unplaced, "heads", lambda real: lambda *args: []),
        "nothing will wake it",
    ),
}


@pytest.mark.parametrize("bug", PLANTS)
def test_the_machine_catches(bug, monkeypatch):
    name, plant, complaint = PLANTS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ValueError, IndexError), match=complaint):
        run_state_machine_as_test(machine(name), settings=examples(3000, is_hunt=True))


def test_the_flood_catches_forgotten_shares(monkeypatch):
    instead(JobMemory, "rank", lambda real: lambda self, job: (True, 0.0))(monkeypatch)
    with pytest.raises(AssertionError, match="are the rich's"):
        test_memory_shares.prove_that_shares_hold(9.0)


def test_small_ones_that_come_and_go_catch_a_missing_reservation(monkeypatch):
    instead(Placement, "_reserve", nothing)(monkeypatch)
    with pytest.raises(AssertionError, match="wait while small ones"):
        test_memory_shares.prove_that_large_ones_stop_no_pool(2, [100])


def _hunt(monkeypatch: pytest.MonkeyPatch, name: str, complaint: str) -> None:
    instead(JobMemory, name, lambda real: lambda self, *args: name == "is_within" or 0)(monkeypatch)

    @given(moves=st.lists(test_memory_shares.COMES | st.integers(0, 100), max_size=40))
    @examples(1000, is_hunt=True)
    def hunt(moves: list[tuple[str, int] | int]) -> None:
        test_memory_shares.prove_that_limits_hold(moves)

    with pytest.raises(AssertionError, match=complaint):
        hunt()


def test_random_moves_catch_a_maximum_that_is_none(monkeypatch):
    _hunt(monkeypatch, "is_within", "live at once|holds too much")


def test_random_moves_catch_a_minimum_that_is_not_kept(monkeypatch):
    _hunt(monkeypatch, "kept_mb", "are promised")
