"""The losses, as small pure functions of tensors with one entry per sampled token.

- `Tokens` holds the sampled tokens of a batch in one flat row; given tokens are not in it.
- Three logprobs of a token: `behaviour` under the weights that sampled it, `old` under the weights
  at the start of the step, and `logprobs` under the weights being trained, the only one with a
  gradient. `old / behaviour` says how stale the token is, `logprobs / old` how far the step went.
- Every loss is a number to minimise; `docs/training.md` has the formulas and where they differ from
  other libraries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from artangram.train.settings import Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShare:
    """What a micro-batch is a part of: so that parts add up to the loss of the whole batch."""

    tokens: int
    sequences: int
    budget: int
    """Tokens of the longest attempt; for `Mean.BUDGET` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Sampled tokens, in one flat row each."""

    logprobs: Tensor
    old: Tensor
    behaviour: Tensor
    advantages: Tensor
    sequence: Tensor
    """Which conversation of this micro-batch a token belongs to, from 0."""
    stale: Tensor
    """Versions between the one that sampled it and the one being trained."""
    entropy: Tensor | None = None
    reference: Tensor | None = None
    """Under the model that must not be left far behind."""
    lengths: Tensor | None = None
    """Sampled tokens of the attempt that a token belongs to, all its conversations together;
    those of its conversation if unsaid."""


def mean_of(
    values: Tensor,
    sequence: Tensor,
    *,
    share: BatchShare,
    over: Mean,
    lengths: Tensor | None = None,
) -> Tensor:
    """One number for `values`; those of all micro-batches add up to the batch's."""
    if over is Mean.TOKENS:
        return values.sum() / share.tokens
    if over is Mean.BUDGET:
        return values.sum() / (share.sequences * share.budget)
    if lengths is None:
        lengths = torch.bincount(sequence)[sequence]
    return (values / lengths).sum() / share.sequences


def clipped(ratio: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    """The gain of each token, flat once the ratio has left `[1 - low, 1 + high]` for the better."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def truncated_weights(tokens: Tokens, *, cap: float) -> Tensor:
    """Importance weights of stale tokens, at most `cap`; 1 for tokens of the current version."""
    weights = (tokens.old - tokens.behaviour).exp().clamp(max=cap)
    return torch.where(tokens.stale > 0, weights, torch.ones_like(weights)).detach()


def kl_to(reference: Tensor, logprobs: Tensor) -> Tensor:
    """An estimate of the divergence from the reference that is never below zero (k3)."""
    gap = reference - logprobs
    return gap.exp() - gap - 1


def grpo(
    tokens: Tokens,
    share: BatchShare,
    *,
    low: float,
    high: float,
    cap: float,
    kl: float,
    over: Mean,
) -> Tensor:
    """Clipped against the weights of the step's start, stale tokens weighed by their ratio."""
    ratio = (tokens.logprobs - tokens.old).exp()
    gain = clipped(ratio, tokens.advantages, low=low, high=high)
    loss = -truncated_weights(tokens, cap=cap) * gain
    if kl:
        loss = loss + kl * kl_to(_reference(tokens), tokens.logprobs)
    return mean_of(loss, tokens.sequence, share=share, over=over, lengths=tokens.lengths)


def ppo(tokens: Tokens, share: BatchShare, *, clip: float, over: Mean) -> Tensor:
    """PPO's clipped objective, against the weights that sampled each token."""
    ratio = (tokens.logprobs - tokens.behaviour).exp()
    gain = clipped(ratio, tokens.advantages, low=clip, high=clip)
    return mean_of(-gain, tokens.sequence, share=share, over=over, lengths=tokens.lengths)


def reinforce_pp(
    tokens: Tokens, share: BatchShare, *, clip: float, kl: float, over: Mean
) -> Tensor:
    """PPO's objective where each token also pays for the divergence from there to the end.

    The advantages come from `advantages.batch_relative`; no critic.
    """
    advantages = tokens.advantages
    if kl:
        cost = (tokens.old - _reference(tokens)).detach()
        advantages = advantages - kl * to_the_end(cost, tokens.sequence)
    ratio = (tokens.logprobs - tokens.behaviour).exp()
    gain = clipped(ratio, advantages, low=clip, high=clip)
    return mean_of(-gain, tokens.sequence, share=share, over=over, lengths=tokens.lengths)


def to_the_end(values: Tensor, sequence: Tensor) -> Tensor:
    """For each token the sum from it to the end of its attempt. Attempts lie in a row."""
    before = values.cumsum(0) - values
    totals = torch.zeros(int(sequence.max()) + 1, dtype=values.dtype).index_add(0, sequence, values)
    return totals.cumsum(0)[sequence] - before


def distillation(
    tokens: Tokens, share: BatchShare, *, teachers: Tensor, weights: Tensor, cap: float
) -> Tensor:
    """On-policy distillation from several teachers: reverse KL, token by token.

    `teachers[k]` are teacher k's logprobs of the sampled tokens, `weights[k]` how much it counts
    for each of them. A token's advantage is how much likelier the teachers find it than we do; its
    expectation over our own tokens is minus the divergence.
    """
    gap = (weights * (teachers - tokens.old)).sum(0) / weights.sum(0).clamp(min=1e-8)
    gain = truncated_weights(tokens, cap=cap) * (tokens.logprobs - tokens.old).exp() * gap.detach()
    return mean_of(-gain, tokens.sequence, share=share, over=Mean.TOKENS)


def entropy_bonus(tokens: Tokens, share: BatchShare, *, weight: float) -> Tensor:
    """What is taken off the loss for keeping alternatives open; a mean over tokens, always."""
    assert tokens.entropy is not None, "ask the model for entropy"
    return -weight * tokens.entropy.sum() / share.tokens


def _reference(tokens: Tokens) -> Tensor:
    assert tokens.reference is not None, "a KL term needs a reference model"
    return tokens.reference
