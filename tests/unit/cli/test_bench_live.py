"""The bench verbs of live runs compute what they say; the figures themselves are not tested."""

import pytest

from artangram.cli.bench.sandbox import Goal, goals_of
from artangram.sandbox.bench import Series


def a_series(name: str, *samples: float, unit: str = "ms") -> Series:
    return Series(name=name, unit=unit, samples=samples)


def goal(goals: list[Goal], what: str) -> Goal:
    return next(one for one in goals if one.what == what)


def test_ratios_are_of_one_interleaved_run() -> None:
    together = [a_series("bare subprocess.run", 2.0), a_series("ours", 3.0)]
    alone = (a_series("bare subprocess.run", 30.0), a_series("exec with a core at 10", 1.0))
    found = goal(goals_of(together, alone), "ours / bare subprocess.run")
    assert found.value == pytest.approx(1.5)
    assert found.is_met


def test_goal_without_its_peer_is_not_met() -> None:
    alone = (a_series("exec with a core at 10", 1.0),)
    found = goal(goals_of([a_series("ours", 3.0)], alone), "podman exec / ours")
    assert found.value is None
    assert not found.is_met


def test_exec_among_many_is_compared_with_exec_among_ten() -> None:
    alone = (a_series("exec with a core at 10", 2.0), a_series("exec with a core at 40", 5.0))
    found = goal(goals_of([], alone), "exec with 40 sandboxes / with 10")
    assert found.value == pytest.approx(2.5)
    assert not found.is_met
