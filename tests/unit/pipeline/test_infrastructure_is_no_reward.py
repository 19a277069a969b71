"""One attempt in five fails as infrastructure does, and the groups look as if none had.

The model succeeds at each problem with a chance of its own. Rewards, spreads and advantages of many
groups are compared with those of the same seeds without failures: equal within what the number of
groups allows, and far outside of it as soon as failures count as zero.
"""

import math
from random import Random
from statistics import fmean, pstdev, pvariance

import pytest
from rollout_world import FakeDoor, FakeEnv, FakeTask, a_rollout, train

from artangram.core.errors import InfraFailed
from artangram.train.advantages import group_relative

pytestmark = pytest.mark.looptime

FAILING = 0.2
GROUPS, GROUP_SIZE = 240, 8
SIGMAS = 3.5


class ShakyTask(FakeTask):
    """Attempts succeed by chance, and fail as infrastructure by another; `phase` says where."""

    def __init__(self, *, failing, phase, counts_as_zero=False):
        super().__init__(turns=1)
        self.failing = failing
        self.phase = phase
        self.counts_as_zero = counts_as_zero
        self.num_failed = 0

    def env(self, problem, *, trajectory):
        return ShakyEnv(self, problem, trajectory)


class ShakyEnv(FakeEnv):
    def __init__(self, task, problem, name):
        super().__init__(task, name)
        chance = Random(name)
        self._fails = chance.random() < task.failing
        self._reward = float(chance.random() < Random(problem.id).uniform(0.3, 0.9))

    async def respond(self, reply):
        self._fail_in("turn")
        return await super().respond(reply)

    async def score(self):
        self._fail_in("reward")
        await super().score()
        return 0.0 if self._fails and self._task.counts_as_zero else self._reward

    def _fail_in(self, phase):
        if self._fails and self._task.phase == phase and not self._task.counts_as_zero:
            self._task.num_failed += 1
            raise InfraFailed("planted")


async def groups_of(task):
    endpoint = FakeDoor(token_s=0.01)
    async with a_rollout(
        task, endpoint=endpoint, environments=64, group_size=GROUP_SIZE
    ) as rollout:
        batches = await train(rollout, endpoint, batches=GROUPS // 4, num_groups=4)
    return [[t.reward for t in group.trajectories] for batch in batches for group in batch.groups]


def differences(one, other):
    """In standard errors: of the mean reward, of the spread in a group, of the lowest advantage."""
    found = {}
    for name, statistic in STATISTICS.items():
        ours, theirs = ([statistic(group) for group in groups] for groups in (one, other))
        error = math.sqrt(pvariance(ours) / len(ours) + pvariance(theirs) / len(theirs))
        found[name] = abs(fmean(ours) - fmean(theirs)) / error
    return found


STATISTICS = {
    "reward": fmean,
    "spread": pstdev,
    "lowest advantage": lambda rewards: min(group_relative(rewards)),
    "highest advantage": lambda rewards: max(group_relative(rewards)),
}


@pytest.mark.parametrize("phase", ["turn", "reward"])
async def test_groups_look_as_if_nothing_had_failed(phase):
    task = ShakyTask(failing=FAILING, phase=phase)
    whole, shaky = await groups_of(ShakyTask(failing=0.0, phase=phase)), await groups_of(task)
    assert task.num_failed > FAILING * GROUPS * GROUP_SIZE
    assert {len(group) for group in shaky} == {GROUP_SIZE}
    assert max(differences(whole, shaky).values()) < SIGMAS


async def test_failures_that_count_as_zero_are_found_out():
    planted = ShakyTask(failing=FAILING, phase="reward", counts_as_zero=True)
    whole = await groups_of(ShakyTask(failing=0.0, phase="reward"))
    assert differences(whole, await groups_of(planted))["reward"] > SIGMAS
