"""How many trajectories may hold an environment while the cluster has a line."""

import pytest

from artangram.core.rollout.admission import AdmissionLimits, Held, Wait, WaitCause, may_start
from artangram.core.rollout.line import FIRST, MOST_WAIT_S, EnvironmentBound

LONG_S = MOST_WAIT_S + 1.0


@pytest.mark.parametrize(
    ("wait_s", "num_waiting", "in_envs", "most"),
    [
        (0.0, 0, 0, FIRST),
        (0.0, 0, 20, 40),
        (0.0, 0, 80, 100),
        (MOST_WAIT_S, 10, 50, 50),
        (LONG_S, 10, 50, 45),
        (LONG_S, 3, 5, 3),
        (LONG_S, 9, 2, 1),
        (LONG_S, 0, 50, 50),
        (LONG_S, 0, 0, 1),
    ],
)
def test_as_many_as_are_served_and_a_few_in_line(wait_s, num_waiting, in_envs, most):
    bound = EnvironmentBound(100)
    bound.on_line(wait_s=wait_s, num_waiting=num_waiting, in_envs=in_envs)
    assert bound.most == most


def test_nothing_starts_beyond_what_the_line_allows():
    limits = AdmissionLimits(environments=8, group_size=2)
    held = Held(in_envs=4, reserved=4, groups={}, most_in_envs=4)
    assert may_start(limits, held, current=0, live=0) == Wait(WaitCause.LINE)
    more = Held(in_envs=4, reserved=4, groups={}, most_in_envs=5)
    assert may_start(limits, more, current=0, live=0) is None
