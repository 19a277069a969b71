"""The losses, as small pure functions of tensors with one entry per sampled token.

- `Tokens` holds the sampled tokens of a batch in one flat row; given tokens are not in it.
- Three logprobs of a token: `behaviour` under the weights that sampled it, `old` under the weights
  at the start of the step, and `logprobs` under the weights being trained, the only one with a
  gradient. `old / behaviour` says how far the engine was from the trainer, by staleness and by
  precision; `logprobs / old` how far the step went.
- A loss is a `Surrogate` (the gain of each token), weighed by a `Correction`, then a mean. Every
  loss is a number to minimise; `docs/training.md` has the formulas and where they differ from other
  libraries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from artangram.train.lossrules import Correction, CorrectionLevel, CorrectionMode, LossRule, Mean

MOST_GAP = 20.0
"""In nats: weights stay finite, and such a ratio is plainly wrong."""


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


class Surrogate(NamedTuple):
    """What a loss makes of each token, before weights and means."""

    gain: Tensor
    """To be raised."""
    is_clipped: Tensor
    """The clip has taken its gradient away."""


class PolicyLoss(NamedTuple):
    loss: Tensor
    is_clipped: Tensor


def policy_loss(tokens: Tokens, share: BatchShare, rule: LossRule) -> PolicyLoss:
    """The loss of a micro-batch by `rule`; those of all micro-batches add up to the batch's."""
    gain, is_clipped = SURROGATES[rule.kind](tokens, rule)
    loss = -correction_weights(tokens, rule.correction) * gain
    if rule.kl and rule.kind != "reinforce":
        loss = loss + rule.kl * kl_to(_reference(tokens), tokens.logprobs)
    return PolicyLoss(_mean(loss, tokens, share, rule.mean), is_clipped)


def clip_surrogate(tokens: Tokens, rule: LossRule) -> Surrogate:
    """GRPO, Dr. GRPO, DAPO: clipped token by token, against the weights of the step's start."""
    ratio = (tokens.logprobs - tokens.old).exp()
    return _clipped_surrogate(ratio, tokens.advantages, rule)


def sequence_surrogate(tokens: Tokens, rule: LossRule) -> Surrogate:
    """GSPO: one ratio for a whole conversation, the geometric mean of its tokens' ratios."""
    gap = tokens.logprobs - tokens.old
    ratio = (_sums(gap, tokens.sequence) / _counts(tokens.sequence)).exp()[tokens.sequence]
    return _clipped_surrogate(ratio, tokens.advantages, rule)


def cispo_surrogate(tokens: Tokens, rule: LossRule) -> Surrogate:
    """CISPO: the ratio is a weight with a ceiling, and every token keeps its gradient."""
    ratio = (tokens.logprobs - tokens.old).exp().detach()
    ceiling = 1 + rule.clip_high
    gain = ratio.clamp(max=ceiling) * tokens.advantages * tokens.logprobs
    return Surrogate(gain, ratio > ceiling)


def ppo_surrogate(tokens: Tokens, rule: LossRule) -> Surrogate:
    """PPO: clipped against the weights that sampled each token."""
    ratio = (tokens.logprobs - tokens.behaviour).exp()
    return _clipped_surrogate(ratio, tokens.advantages, rule)


def reinforce_surrogate(tokens: Tokens, rule: LossRule) -> Surrogate:
    """REINFORCE++: PPO's, where each token also pays for the divergence from there to the end.

    The advantages come from `advantages.batch_relative`; no critic.
    """
    advantages = tokens.advantages
    if rule.kl:
        cost = (tokens.old - _reference(tokens)).detach()
        advantages = advantages - rule.kl * to_the_end(cost, tokens.sequence)
    ratio = (tokens.logprobs - tokens.behaviour).exp()
    return _clipped_surrogate(ratio, advantages, rule)


SURROGATES: dict[str, Callable[[Tokens, LossRule], Surrogate]] = {
    "clip": clip_surrogate,
    "sequence": sequence_surrogate,
    "cispo": cispo_surrogate,
    "ppo": ppo_surrogate,
    "reinforce": reinforce_surrogate,
}


def clipped(ratio: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    """The gain of each token, flat once the ratio has left `[1 - low, 1 + high]` for the better."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def correction_weights(tokens: Tokens, correction: Correction) -> Tensor:
    """The importance weight of each token: how likely it is here over how likely it was there."""
    if correction.mode is CorrectionMode.OFF:
        return torch.ones_like(tokens.old)
    gap = (tokens.old - tokens.behaviour).detach()
    if correction.level is CorrectionLevel.SEQUENCE:
        gap = _sums(gap, tokens.sequence)[tokens.sequence]
    weights = gap.clamp(-MOST_GAP, MOST_GAP).exp()
    if correction.mode is CorrectionMode.TRUNCATE:
        return weights.clamp(correction.low, correction.high)
    is_near = (weights >= correction.low) & (weights <= correction.high)
    return torch.where(is_near, weights, torch.zeros_like(weights))


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
        lengths = _counts(sequence)[sequence]
    return (values / lengths).sum() / share.sequences


def kl_to(reference: Tensor, logprobs: Tensor) -> Tensor:
    """An estimate of the divergence from the reference that is never below zero (k3)."""
    gap = reference - logprobs
    return gap.exp() - gap - 1


def to_the_end(values: Tensor, sequence: Tensor) -> Tensor:
    """For each token the sum from it to the end of its conversation, which lies in a row."""
    before = values.cumsum(0) - values
    return _sums(values, sequence).cumsum(0)[sequence] - before


def distillation(
    tokens: Tokens, share: BatchShare, *, teachers: Tensor, weights: Tensor, correction: Correction
) -> Tensor:
    """On-policy distillation from several teachers: reverse KL, token by token.

    `teachers[k]` are teacher k's logprobs of the sampled tokens, `weights[k]` how much it counts
    for each of them. A token's advantage is how much likelier the teachers find it than we do; its
    expectation over our own tokens is minus the divergence.
    """
    gap = (weights * (teachers - tokens.old)).sum(0) / weights.sum(0).clamp(min=1e-8)
    ratio = (tokens.logprobs - tokens.old).exp()
    gain = correction_weights(tokens, correction) * ratio * gap.detach()
    return _mean(-gain, tokens, share, Mean.TOKENS)


def entropy_bonus(tokens: Tokens, share: BatchShare, *, weight: float) -> Tensor:
    """What is taken off the loss for keeping alternatives open; a mean over tokens, always."""
    assert tokens.entropy is not None, "ask the model for entropy"
    return -weight * tokens.entropy.sum() / share.tokens


def _clipped_surrogate(ratio: Tensor, advantages: Tensor, rule: LossRule) -> Surrogate:
    low, high = rule.clip_low, rule.clip_high
    is_beyond = torch.where(advantages > 0, ratio > 1 + high, ratio < 1 - low)
    gain = clipped(ratio, advantages, low=low, high=high)
    return Surrogate(gain, is_beyond & (advantages != 0))


def _mean(values: Tensor, tokens: Tokens, share: BatchShare, over: Mean) -> Tensor:
    return mean_of(values, tokens.sequence, share=share, over=over, lengths=tokens.lengths)


def _sums(values: Tensor, sequence: Tensor) -> Tensor:
    """Of each conversation."""
    empty = torch.zeros(int(sequence.max()) + 1, dtype=values.dtype, device=values.device)
    return empty.index_add(0, sequence, values)


def _counts(sequence: Tensor) -> Tensor:
    """Tokens of each conversation."""
    return torch.bincount(sequence).clamp(min=1)


def _reference(tokens: Tokens) -> Tensor:
    assert tokens.reference is not None, "a KL term needs a reference model"
    return tokens.reference
