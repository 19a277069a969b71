"""What training sees of a trajectory."""

import msgspec
from msgspec import structs
from rollout_builders import a_group, a_trajectory

from artangram.core.rollout.trajectory import Batch, Group, Trajectory


def test_the_oldest_sampled_token_says_how_old_a_trajectory_is():
    mixed = a_trajectory(5, 4, 5)
    assert mixed.oldest_version == 4
    assert mixed.staleness(6) == 2
    assert mixed.num_sampled == 3


def test_what_sampled_nothing_is_not_stale():
    assert a_trajectory().oldest_version is None
    assert a_trajectory().staleness(9) == 0
    assert a_group(a_trajectory()).oldest_version is None


def test_a_group_is_as_old_as_its_oldest_member():
    group = a_group(a_trajectory(5), a_trajectory(), a_trajectory(3, 5))
    assert group.oldest_version == 3
    assert group.staleness(5) == 2
    assert a_group().staleness(5) == 0


def test_a_batch_says_whether_it_is_whole():
    group = a_group(a_trajectory(1), a_trajectory(2))
    batch = Batch(groups=(group,), version=2, asked=2)
    assert len(batch.groups) < batch.asked
    assert batch.trajectories == group.trajectories


def test_a_group_survives_a_checkpoint():
    group = a_group(a_trajectory(1, 2))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(group), type=Group) == group


def test_a_group_has_a_signal_where_rewards_of_attempts_or_of_a_turn_differ():
    def a_member(reward: float, *turns: float | None) -> Trajectory:
        return structs.replace(a_trajectory(1, reward=reward), turn_rewards=turns)

    assert not a_group(a_member(1.0, 0.5, 1.0), a_member(1.0, 0.5), a_member(1.0)).has_signal
    assert a_group(a_member(1.0), a_member(0.0)).has_signal
    assert a_group(a_member(1.0, None, 0.5), a_member(1.0, 1.0, 0.0)).has_signal


def test_rewards_of_turns_stand_beside_those_of_siblings():
    one = structs.replace(a_trajectory(1), turn_rewards=(1.0, None, 2.0))
    two = structs.replace(a_trajectory(1), turn_rewards=(0.0,))
    assert a_group(one, two).turn_rewards == [{0: 1.0, 1: 0.0}, {}, {0: 2.0}]
