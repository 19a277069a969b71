"""Losses against numbers worked out by hand."""

from math import exp, log

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from artangram.train.losses import (  # noqa: E402 - only where torch is there
    BatchShare,
    Tokens,
    clipped,
    distillation,
    entropy_bonus,
    grpo,
    kl_to,
    mean_of,
    ppo,
    reinforce_pp,
    to_the_end,
    truncated_weights,
)
from artangram.train.settings import Mean  # noqa: E402


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


def test_only_stale_tokens_are_weighed_and_never_above_the_cap():
    row = tokens(
        [-1.0, -1.0, -1.0],
        behaviour=tensor(-1.0 - log(3), -1.0 - log(3), -1.0 + log(2)),
        stale=torch.tensor([0, 1, 1]),
    )
    assert truncated_weights(row, cap=2.0).tolist() == pytest.approx([1.0, 2.0, 0.5])


def test_kl_is_zero_at_the_reference_and_positive_elsewhere():
    found = kl_to(tensor(-1.0, -2.0, -0.5), tensor(-1.0, -1.0, -1.0))
    assert found.tolist() == pytest.approx([0.0, exp(-1), exp(0.5) - 1.5])


def test_fresh_grpo_has_the_gradient_of_plain_policy_gradient():
    row = tokens([-1.0, -2.0], advantages=tensor(2.0, -1.0))
    loss = grpo(row, whole(row), low=0.2, high=0.28, cap=2.0, kl=0.0, over=Mean.TOKENS)
    loss.backward()
    assert loss.item() == pytest.approx(-0.5)
    assert row.logprobs.grad.tolist() == pytest.approx([-1.0, 0.5])


def test_grpo_weighs_clips_and_adds_kl():
    row = tokens(
        [-1.0],
        old=tensor(-1.0 - log(1.5)),
        behaviour=tensor(-1.0 - log(1.5) - log(1.2)),
        stale=torch.tensor([1]),
        reference=tensor(-2.0),
    )
    loss = grpo(row, whole(row), low=0.2, high=0.28, cap=2.0, kl=0.1, over=Mean.TOKENS)
    assert loss.item() == pytest.approx(-1.2 * 1.28 + 0.1 * exp(-1))


def test_ppo_clips_against_the_weights_that_sampled():
    row = tokens([-1.0, -1.0], behaviour=tensor(-1.0 - log(2), -1.0), advantages=tensor(1.0, 3.0))
    loss = ppo(row, whole(row), clip=0.2, over=Mean.TOKENS)
    assert loss.item() == pytest.approx(-(1.2 + 3.0) / 2)


def test_sums_to_the_end_stop_at_the_attempts_end():
    sums = to_the_end(tensor(1.0, 2.0, 3.0, 10.0, 20.0), torch.tensor([0, 0, 0, 1, 1]))
    assert sums.tolist() == pytest.approx([6.0, 5.0, 3.0, 30.0, 20.0])


def test_reinforce_pp_charges_each_token_for_the_divergence_that_follows():
    row = tokens([-1.0, -1.0], reference=tensor(-1.5, -3.0), advantages=tensor(1.0, 1.0))
    # Divergences 0.5 and 2, to the end 2.5 and 2: advantages 1 - 0.25 and 1 - 0.2.
    loss = reinforce_pp(row, whole(row), clip=0.2, kl=0.1, over=Mean.TOKENS)
    assert loss.item() == pytest.approx(-(0.75 + 0.8) / 2)


def test_distillation_pulls_towards_what_each_tokens_teachers_say():
    row = tokens([-1.0, -1.0])
    teachers = torch.tensor([[-0.5, -9.0], [-1.5, -3.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    loss = distillation(row, whole(row), teachers=teachers, weights=weights, cap=2.0)
    loss.backward()
    # Gaps: the mean of 0.5 and -0.5; then -2 of the second teacher alone.
    assert loss.item() == pytest.approx(1.0)
    assert row.logprobs.grad.tolist() == pytest.approx([0.0, 1.0])


def test_entropy_bonus_is_taken_off_per_token():
    row = tokens([-1.0, -1.0], entropy=tensor(0.5, 1.5))
    assert entropy_bonus(row, whole(row), weight=0.1).item() == pytest.approx(-0.1)
