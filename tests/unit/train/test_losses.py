"""Losses against numbers worked out by hand."""

from math import exp, log

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from artangram.core.errors import BadInput  # noqa: E402 - only where torch is there
from artangram.train.losses import (  # noqa: E402 - only where torch is there
    BatchShare,
    Tokens,
    clipped,
    correction_weights,
    distillation,
    entropy_bonus,
    kl_to,
    mean_of,
    policy_loss,
    to_the_end,
)
from artangram.train.lossrules import Correction, LossParts, Mean, Overlong, rule_of  # noqa: E402


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def tokens(logprobs, **fields):
    """By default all of one attempt, fresh, with advantage 1."""
    new = tensor(*logprobs).requires_grad_()
    same = new.detach()
    zeros = torch.zeros(len(logprobs), dtype=torch.long)
    filled = {
        "logprobs": new,
        "old": same,
        "behaviour": same,
        "advantages": torch.ones_like(same),
        "sequence": zeros,
        "stale": zeros,
    }
    return Tokens(**{**filled, **fields})


def whole(row):
    sequences = int(row.sequence.max()) + 1
    return BatchShare(tokens=len(row.logprobs), sequences=sequences, budget=1)


def test_clip_holds_gains_at_its_two_edges_and_losses_not_at_all():
    ratio = tensor(1.5, 0.5, 1.5, 0.5)
    gains = clipped(ratio, tensor(1.0, 1.0, -1.0, -1.0), low=0.2, high=0.28)
    assert gains.tolist() == pytest.approx([1.28, 0.5, -1.5, -0.8])


def test_means_weigh_tokens_attempts_or_the_budget():
    values, sequence = tensor(1.0, 2.0, 3.0, 10.0), torch.tensor([0, 0, 0, 1])
    share = BatchShare(tokens=4, sequences=2, budget=8)
    of = {m: mean_of(values, sequence, share=share, over=m).item() for m in Mean}
    assert of == pytest.approx({"tokens": 4.0, "sequences": 6.0, "budget": 1.0})


@pytest.mark.parametrize("over", Mean)
def test_parts_of_a_batch_add_up_to_the_whole(over):
    values, sequence = tensor(1.0, 2.0, 3.0, 10.0), torch.tensor([0, 0, 0, 1])
    share = BatchShare(tokens=4, sequences=2, budget=8)
    parts = [
        mean_of(values[:3], sequence[:3], share=share, over=over),
        mean_of(values[3:], torch.tensor([0]), share=share, over=over),
    ]
    assert sum(parts).item() == pytest.approx(
        mean_of(values, sequence, share=share, over=over).item()
    )


FAR = {"behaviour": tensor(-1.0 - log(3), -1.0 - log(1.5), -1.0 + log(2), -1.0)}
"""Ratios 3, 1.5, 0.5 and 1 of tokens whose logprob is -1."""


@pytest.mark.parametrize(
    ("fields", "weights"),
    [
        ({}, [2.0, 1.5, 0.5, 1.0]),
        ({"low": 0.8}, [2.0, 1.5, 0.8, 1.0]),
        ({"mode": "mask", "low": 0.6}, [0.0, 1.5, 0.0, 1.0]),
        ({"mode": "off"}, [1.0, 1.0, 1.0, 1.0]),
        # Products of two and two: 4.5 and 0.5.
        ({"level": "sequence"}, [2.0, 2.0, 0.5, 0.5]),
        ({"level": "sequence", "mode": "mask", "high": 5.0}, [4.5, 4.5, 0.5, 0.5]),
        ({"level": "sequence", "mode": "mask", "low": 0.6}, [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_every_token_is_weighed_by_how_much_likelier_it_is_here(fields, weights):
    row = tokens([-1.0] * 4, sequence=torch.tensor([0, 0, 1, 1]), **FAR)
    correction = msgspec.convert(fields, type=Correction)
    assert correction_weights(row, correction).tolist() == pytest.approx(weights)


def loss_of(name, row, share=None, **parts):
    return policy_loss(row, share or whole(row), rule_of(LossParts(loss=name, **parts)))


def test_kl_is_zero_at_the_reference_and_positive_elsewhere():
    found = kl_to(tensor(-1.0, -2.0, -0.5), tensor(-1.0, -1.0, -1.0))
    assert found.tolist() == pytest.approx([0.0, exp(-1), exp(0.5) - 1.5])


def test_fresh_grpo_has_the_gradient_of_plain_policy_gradient():
    row = tokens([-1.0, -2.0], advantages=tensor(2.0, -1.0))
    loss, is_clipped = loss_of("grpo", row, mean=Mean.TOKENS)
    loss.backward()
    assert loss.item() == pytest.approx(-0.5)
    assert row.logprobs.grad.tolist() == pytest.approx([-1.0, 0.5])
    assert not is_clipped.any()


def test_grpo_weighs_clips_and_adds_kl():
    row = tokens(
        [-1.0],
        old=tensor(-1.0 - log(1.5)),
        behaviour=tensor(-1.0 - log(1.5) - log(1.2)),
        reference=tensor(-2.0),
    )
    loss, is_clipped = loss_of("grpo", row, mean=Mean.TOKENS, kl=0.1)
    assert loss.item() == pytest.approx(-1.2 * 1.28 + 0.1 * exp(-1))
    assert is_clipped.tolist() == [True]


STEPPED = {
    "old": tensor(-1.0 - log(1.1), -1.0 - log(1.5), -1.0 + log(2), -1.0),
    "advantages": tensor(1.0, 1.0, -2.0, -2.0),
    "sequence": torch.tensor([0, 0, 0, 1]),
}
"""Ratios 1.1, 1.5, 0.5 of one attempt and 1 of another, after some epochs."""


def stepped():
    return tokens([-1.0] * 4, behaviour=STEPPED["old"], **STEPPED)


@pytest.mark.parametrize(
    ("name", "expected", "held"),
    [
        # Gains 1.1, 1.28, -1.6 (held at 1 - 0.2) of three tokens, and -2 of one.
        ("grpo", -((1.1 + 1.28 - 1.6) / 3 - 2.0) / 2, [False, True, True, False]),
        # The same over four tokens.
        ("dapo", -(1.1 + 1.28 - 1.6 - 2.0) / 4, [False, True, True, False]),
        # Held at 1.2; two attempts of a budget of ten tokens.
        ("dr_grpo", -(1.1 + 1.2 - 1.6 - 2.0) / (2 * 10), [False, True, True, False]),
        # Ratios are weights below 5; the logprob is -1 everywhere.
        ("cispo", -(-1.1 - 1.5 + 2 * 0.5 + 2.0) / 4, [False] * 4),
        ("ppo", -((1.1 + 1.2 - 1.6) / 3 - 2.0) / 2, [False, True, True, False]),
        ("reinforce++", -((1.1 + 1.2 - 1.6) / 3 - 2.0) / 2, [False, True, True, False]),
    ],
)
def test_losses_have_the_values_worked_out_by_hand(name, expected, held):
    row = stepped()
    share = BatchShare(tokens=4, sequences=2, budget=10)
    loss, is_clipped = loss_of(name, row, share)
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    assert is_clipped.tolist() == held


def test_gspo_clips_the_geometric_mean_of_a_conversation():
    old = tensor(-1.0 - log(1.21), -1.0, -1.0 - log(1.5))
    row = tokens(
        [-1.0, -1.0, -1.0],
        old=old,
        behaviour=old,
        advantages=tensor(1.0, 1.0, 1.0),
        sequence=torch.tensor([0, 0, 1]),
    )
    # Ratios: the root of 1.21, and 1.5, which is held at 1.2.
    loss, is_clipped = loss_of("gspo", row, clip_low=0.2, clip_high=0.2)
    loss.backward()
    assert loss.item() == pytest.approx(-(1.1 + 1.2) / 2, abs=1e-5)
    assert is_clipped.tolist() == [False, False, True]
    # d ratio / d logprob is the ratio over the length; two tokens have it, over two attempts.
    assert row.logprobs.grad.tolist() == pytest.approx([-0.275, -0.275, 0.0])
    # As published, the clip is a thousand times closer.
    assert loss_of("gspo", row).is_clipped.tolist() == [True, True, True]


def test_cispo_keeps_the_gradient_of_a_token_beyond_its_ceiling():
    old = tensor(-1.0 - log(8), -1.0)
    row = tokens([-1.0, -1.0], old=old, behaviour=old, advantages=tensor(1.0, -1.0))
    loss, is_clipped = loss_of("cispo", row)
    loss.backward()
    assert row.logprobs.grad.tolist() == pytest.approx([-5.0 / 2, 1.0 / 2])
    assert is_clipped.tolist() == [True, False]


def test_ppo_clips_against_the_weights_that_sampled():
    row = tokens([-1.0, -1.0], behaviour=tensor(-1.0 - log(2), -1.0), advantages=tensor(1.0, 3.0))
    loss = loss_of("ppo", row, mean=Mean.TOKENS).loss
    assert loss.item() == pytest.approx(-(1.2 + 3.0) / 2)


def test_an_overlong_attempt_loses_more_the_closer_it_comes_to_the_limit():
    overlong = Overlong(limit=100, buffer=20)
    assert [overlong.penalty(n) for n in (80, 85, 100, 200)] == pytest.approx([0, 0.25, 1, 1])
    assert Overlong().penalty(10**6) == 0


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"loss": "ppo", "correction": Correction()}, "correction: ppo takes none"),
        ({"loss": "ppo", "kl": 0.1}, "kl: ppo has no such term"),
    ],
)
def test_parts_that_do_not_fit_a_loss_are_refused(parts, complaint):
    with pytest.raises(BadInput, match=complaint):
        rule_of(LossParts(**parts))


def test_sums_to_the_end_stop_at_the_attempts_end():
    sums = to_the_end(tensor(1.0, 2.0, 3.0, 10.0, 20.0), torch.tensor([0, 0, 0, 1, 1]))
    assert sums.tolist() == pytest.approx([6.0, 5.0, 3.0, 30.0, 20.0])


def test_reinforce_pp_charges_each_token_for_the_divergence_that_follows():
    row = tokens([-1.0, -1.0], reference=tensor(-1.5, -3.0), advantages=tensor(1.0, 1.0))
    # Divergences 0.5 and 2, to the end 2.5 and 2: advantages 1 - 0.25 and 1 - 0.2.
    loss = loss_of("reinforce++", row, kl=0.1, mean=Mean.TOKENS).loss
    assert loss.item() == pytest.approx(-(0.75 + 0.8) / 2)


def test_distillation_pulls_towards_what_each_tokens_teachers_say():
    row = tokens([-1.0, -1.0])
    teachers = torch.tensor([[-0.5, -9.0], [-1.5, -3.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    loss = distillation(
        row, whole(row), teachers=teachers, weights=weights, correction=Correction()
    )
    loss.backward()
    # Gaps: the mean of 0.5 and -0.5; then -2 of the second teacher alone.
    assert loss.item() == pytest.approx(1.0)
    assert row.logprobs.grad.tolist() == pytest.approx([0.0, 1.0])


def test_entropy_bonus_is_taken_off_per_token():
    row = tokens([-1.0, -1.0], entropy=tensor(0.5, 1.5))
    assert entropy_bonus(row, whole(row), weight=0.1).item() == pytest.approx(-0.1)
