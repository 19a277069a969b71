"""What a step did, as numbers: counted while it runs, reported when it ends."""

from collections.abc import Sequence
from statistics import pstdev

import torch
from msgspec import Struct
from torch import Tensor

from artangram.core.rollout.trajectory import Group, TrajectoryStatus
from artangram.train.backend import TrainBackend
from artangram.train.losses import MOST_GAP, Tokens, kl_to


class StepMetrics(Struct, frozen=True, kw_only=True):
    """One optimiser step."""

    version: int
    """The version that it made, or left as it was when skipped."""
    is_skipped: bool
    why_skipped: str = ""
    groups: int
    trajectories: int
    samples: int
    """Trajectories that taught something."""
    reward: float
    rewards: dict[str, float]
    """Mean reward by task."""
    reward_deviation: float = 0.0
    equal_groups: float = 0.0
    """The share of groups whose rewards are all equal: they teach nothing."""
    truncated: float = 0.0
    """The share of attempts that were cut short."""
    length: float = 0.0
    """Mean number of sampled tokens of an attempt."""
    max_length: int = 0
    tokens: int
    loss: float
    """Of its first epoch; 0 when skipped."""
    entropy: float
    kl: float = 0.0
    """Mean divergence from the model that the run began with, where a loss has that term."""
    clip_share: float = 0.0
    """Of the tokens of all epochs, those without a gradient because of the clip."""
    grad_norm: float
    stale_share: float
    """Of the trained tokens, those sampled by an older version."""
    max_staleness: int
    stale_ratio: float
    """The mean ratio of stale tokens, before the correction."""
    fresh_error: float
    """How far the ratio of a fresh token was from 1, at most."""
    mismatch_kl: float = 0.0
    """Mean divergence of the trainer from the engine, over fresh tokens: what precision costs."""
    teacher_gap: float = 0.0
    """Of distillation: by how many nats the student found its tokens likelier than its teachers."""


class StepTally:
    """Sums over the micro-batches of one step."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self.grad_norm = 0.0
        self._sums = dict.fromkeys(
            (
                *("loss", "tokens", "entropy", "kl", "seen", "clipped"),
                *("stale", "stale_ratio", "fresh", "mismatch"),
            ),
            0.0,
        )
        self._max_staleness = 0
        self._fresh_error = 0.0

    @torch.no_grad()
    def add(self, tokens: Tokens, loss: Tensor, *, is_first: bool) -> None:
        """Count a micro-batch; ratios only in the first epoch, when `old` was just scored."""
        if not is_first:
            return
        gap = (tokens.old - tokens.behaviour).nan_to_num(nan=MOST_GAP)
        ratio = gap.clamp(max=MOST_GAP).exp()
        is_stale = tokens.stale > 0
        self._add(
            loss=loss,
            tokens=len(ratio),
            stale=is_stale.sum(),
            stale_ratio=ratio[is_stale].sum(),
            fresh=(~is_stale).sum(),
        )
        if tokens.entropy is not None:
            self._add(entropy=tokens.entropy.sum())
        if tokens.reference is not None:
            self._add(kl=kl_to(tokens.reference, tokens.old).sum())
        self._max_staleness = max(self._max_staleness, int(tokens.stale.max()))
        fresh = ratio[~is_stale]
        if len(fresh):
            self._add(mismatch=(fresh - 1 - gap[~is_stale].clamp(max=MOST_GAP)).sum())
            self._fresh_error = max(self._fresh_error, float((fresh - 1).abs().max()))

    @torch.no_grad()
    def add_clipped(self, is_clipped: Tensor) -> None:
        """Count the tokens of a micro-batch, in every epoch, and those that the clip holds."""
        self._add(seen=len(is_clipped), clipped=is_clipped.sum())

    def _add(self, **amounts: float | Tensor) -> None:
        for name, amount in amounts.items():
            self._sums[name] += float(amount)

    def join(self, backend: TrainBackend) -> None:
        """Count what all processes counted; they do this together."""
        sums = backend.add(list(self._sums.values()))
        self._sums = dict(zip(self._sums, sums, strict=True))
        staleness, self._fresh_error = backend.most([self._max_staleness, self._fresh_error])
        self._max_staleness = int(staleness)

    def report(self, *, version: int, samples: int, why_skipped: str = "") -> StepMetrics:
        """The step; it was skipped if it says why."""
        sums = self._sums
        tokens, stale, fresh = sums["tokens"], sums["stale"], sums["fresh"]
        rewards = self._rewards()
        every = [reward for found in rewards.values() for reward in found]
        lengths = [t.num_sampled for group in self._groups for t in group.trajectories]
        return StepMetrics(
            version=version,
            is_skipped=bool(why_skipped),
            why_skipped=why_skipped,
            groups=len(self._groups),
            trajectories=len(every),
            samples=samples,
            reward=_mean(every),
            rewards={task: _mean(found) for task, found in rewards.items()},
            reward_deviation=pstdev(every) if every else 0.0,
            equal_groups=_mean([float(not group.has_signal) for group in self._groups]),
            truncated=_mean([float(is_cut) for is_cut in self._truncated()]),
            length=_mean(lengths),
            max_length=max(lengths, default=0),
            tokens=int(tokens),
            loss=0.0 if why_skipped else sums["loss"],
            entropy=sums["entropy"] / max(tokens, 1.0),
            kl=sums["kl"] / max(tokens, 1.0),
            clip_share=sums["clipped"] / max(sums["seen"], 1.0),
            grad_norm=self.grad_norm,
            stale_share=stale / max(tokens, 1.0),
            max_staleness=self._max_staleness,
            stale_ratio=sums["stale_ratio"] / stale if stale else 1.0,
            fresh_error=self._fresh_error,
            mismatch_kl=sums["mismatch"] / max(fresh, 1.0),
        )

    def _truncated(self) -> list[bool]:
        every = (t for group in self._groups for t in group.trajectories)
        return [one.status is TrajectoryStatus.TRUNCATED for one in every]

    def _rewards(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for group in self._groups:
            given = [t.reward for t in group.trajectories if t.reward is not None]
            found.setdefault(group.task, []).extend(given)
        return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
