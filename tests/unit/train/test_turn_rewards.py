"""Rewards of turns: credited to the tokens of their turn, against siblings' same turn."""

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from msgspec import structs  # noqa: E402

from artangram.core.rollout.trajectory import Group, Segment  # noqa: E402
from artangram.train.lossrules import Scale  # noqa: E402
from artangram.train.samples import rows_of, samples_of  # noqa: E402
from artangram.train.settings import TrainSettings  # noqa: E402
from artangram.train.trainer import Trainer  # noqa: E402
from unit.train.attempts import a_group, a_model, an_attempt, even  # noqa: E402

SETTINGS = TrainSettings(min_samples=1, lr=5e-3, entropy=0.0)


def two_siblings(model, **changed):
    """Turns of 4 and 2 tokens, and of 3 and 2; one turn of the second has no reward."""
    one = an_attempt(model, "one", reward=lambda tokens: 1.0, seed=1, length=4)
    two = an_attempt(model, "two", reward=lambda tokens: 0.0, seed=2, length=3)
    one = structs.replace(one, turn_rewards=(1.0, 0.5), **changed)
    two = structs.replace(two, turn_rewards=(0.0, None))
    return Group(id="g", job=one.job, task="t", problem="p", trajectories=(one, two))


def advantages(group, settings=SETTINGS):
    found = rows_of(samples_of([group], settings), version=0).advantages
    return [round(value, 6) for value in found.tolist()]


@pytest.mark.parametrize(
    ("changed", "first", "second"),
    [
        # 0.5 / (0.70710678 + 0.0001) for the attempt, and again for its first turn.
        ({}, (1.414014, 0.707007), (-1.414014, -0.707007)),
        ({"turn_weight": 0.5}, (1.060510, 0.707007), (-1.060510, -0.707007)),
        ({"turn_weight": 0.0}, (0.707007, 0.707007), (-0.707007, -0.707007)),
        ({"scale": Scale.NONE}, (1.0, 0.5), (-1.0, -0.5)),
        # Deviations of 0.5 for attempts, and of sqrt(0.5 / 3) for the three rewards of turns.
        ({"scale": Scale.BATCH}, (2.224245, 0.9998), (-2.224245, -0.9998)),
    ],
)
def test_each_token_gets_what_its_attempt_and_its_turn_gained(changed, first, second):
    found = advantages(two_siblings(a_model()), structs.replace(SETTINGS, **changed))
    wanted = [*[first[0]] * 4, *[first[1]] * 2, *[second[0]] * 3, *[second[1]] * 2]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_the_loss_is_that_of_the_hand():
    trainer = Trainer(a_model(), SETTINGS)
    report = trainer.step([two_siblings(trainer.model)])
    # (4 * 1.41401358 + 2 * 0.70700679) / 6 less (3 * 1.41401358 + 2 * 0.70700679) / 5, halved.
    assert report.loss == pytest.approx(-0.02356689, abs=1e-5)


def test_turns_of_several_conversations_are_counted_in_the_order_of_time():
    group = two_siblings(a_model())
    one, two = group.trajectories
    given, first, between, second = one.segments
    # A sub-agent made the first request, in a conversation of its own.
    later = (given, structs.replace(second, turn=1))
    earlier = (given, between, structs.replace(first, turn=0))
    moved = structs.replace(one, segments=later, branches=(earlier,))
    found = advantages(structs.replace(group, trajectories=(moved, two)))
    assert found[:2] == pytest.approx([0.707007] * 2, abs=1e-5)
    assert sorted(found)[-4:] == pytest.approx([1.414014] * 4, abs=1e-5)


def test_siblings_that_differ_in_a_turn_only_are_a_signal():
    group = two_siblings(a_model())
    one, two = (structs.replace(t, reward=0.0) for t in group.trajectories)
    group = structs.replace(group, trajectories=(one, two))
    found = advantages(group)
    assert found == pytest.approx(
        [0.707007] * 4 + [0.0] * 2 + [-0.707007] * 3 + [0.0] * 2, abs=1e-5
    )
    assert not samples_of([group], structs.replace(SETTINGS, turn_weight=0.0))


def test_a_turn_comes_to_be_what_is_rewarded_without_any_reward_of_attempts():
    torch.set_num_threads(1)
    trainer = Trainer(a_model(), SETTINGS)
    shares = []
    for step in range(12):
        group = a_group(trainer.model, f"g{step}", reward=lambda t: 0.0, size=16, version=step)
        rewarded = tuple(
            structs.replace(one, turn_rewards=(even(_first(one).token_ids),))
            for one in group.trajectories
        )
        trainer.step([structs.replace(group, trajectories=rewarded)])
        shares.append(sum(t.turn_rewards[0] for t in rewarded) / 16)
    assert sum(shares[-3:]) / 3 > sum(shares[:3]) / 3 + 0.2


def _first(one) -> Segment:
    return next(segment for segment in one.segments if segment.is_sampled)
