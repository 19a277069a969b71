"""Which bugs of environments end a run."""

from msgspec import structs
from rollout_builders import a_trajectory

from artangram.core.errors import InfraFailed
from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.rollout.defects import Defects


def a_bug(kind=ValueError):
    try:
        raise kind("a bug")
    except kind as error:
        return error


def told(ends):
    """What is said of attempts that end like this: pairs of a problem and an error."""
    found = []
    defects = Defects(found.append)
    for problem, error in ends:
        status = TrajectoryStatus.OK if error is None else TrajectoryStatus.INFRA_FAILED
        one = structs.replace(a_trajectory(status=status), problem=str(problem))
        defects.on_end(one, error)
    return [str(one) for one in found]


def test_the_same_bug_at_several_problems_ends_the_run():
    (said,) = told((problem // 3, a_bug()) for problem in range(8))
    assert said.startswith("tasks.math: ValueError: a bug, in 8 attempts in a row")


def test_a_problem_that_breaks_its_environment_does_not():
    assert told((problem // 20, a_bug()) for problem in range(40)) == []


def test_neither_does_a_bug_beside_attempts_that_succeed():
    assert told((n, a_bug() if n % 4 else None) for n in range(100)) == []


def test_neither_do_different_bugs_or_failures_of_infrastructure():
    assert told((n, a_bug((ValueError, KeyError)[n % 2])) for n in range(100)) == []
    assert told((n, a_bug(InfraFailed)) for n in range(100)) == []
