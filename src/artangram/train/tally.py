"""What a step did, as numbers: counted while it runs, reported when it ends."""

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch import Tensor

from artangram.core.rollout.trajectory import Group
from artangram.train.backend import TrainBackend
from artangram.train.losses import Tokens

MOST_GAP = 20.0
"""In nats: statistics stay finite, and such a ratio is plainly wrong."""


class StepMetrics(Struct, frozen=True, kw_only=True):
    """One optimiser step."""

    version: int
    """The version that it made, or left as it was when skipped."""
    is_skipped: bool
    groups: int
    trajectories: int
    samples: int
    """Trajectories that taught something."""
    reward: float
    rewards: dict[str, float]
    """Mean reward by task."""
    tokens: int
    loss: float
    """Of its first epoch; 0 when skipped."""
    entropy: float
    grad_norm: float
    stale_share: float
    """Of the trained tokens, those sampled by an older version."""
    max_staleness: int
    stale_ratio: float
    """The mean ratio of stale tokens, before the cap."""
    fresh_error: float
    """How far the ratio of a fresh token was from 1, at most."""


class StepTally:
    """Sums over the micro-batches of one step."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self.grad_norm = 0.0
        self._loss = self._tokens = self._entropy = 0.0
        self._stale = self._stale_ratio = 0.0
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
        self._loss += float(loss)
        self._tokens += len(ratio)
        self._entropy += 0.0 if tokens.entropy is None else float(tokens.entropy.sum())
        self._stale += float(is_stale.sum())
        self._stale_ratio += float(ratio[is_stale].sum())
        self._max_staleness = max(self._max_staleness, int(tokens.stale.max()))
        fresh = ratio[~is_stale]
        if len(fresh):
            self._fresh_error = max(self._fresh_error, float((fresh - 1).abs().max()))

    def join(self, backend: TrainBackend) -> None:
        """Count what all processes counted; they do this together."""
        own = [self._loss, self._tokens, self._entropy, self._stale, self._stale_ratio]
        self._loss, self._tokens, self._entropy, self._stale, self._stale_ratio = backend.add(own)
        staleness, self._fresh_error = backend.most([self._max_staleness, self._fresh_error])
        self._max_staleness = int(staleness)

    def report(self, *, version: int, samples: int, is_skipped: bool = False) -> StepMetrics:
        tokens, stale = self._tokens, self._stale
        rewards = self._rewards()
        every = [reward for found in rewards.values() for reward in found]
        return StepMetrics(
            version=version,
            is_skipped=is_skipped,
            groups=len(self._groups),
            trajectories=len(every),
            samples=samples,
            reward=_mean(every),
            rewards={task: _mean(found) for task, found in rewards.items()},
            tokens=int(tokens),
            loss=0.0 if is_skipped else self._loss,
            entropy=self._entropy / max(tokens, 1.0),
            grad_norm=self.grad_norm,
            stale_share=stale / max(tokens, 1.0),
            max_staleness=self._max_staleness,
            stale_ratio=self._stale_ratio / stale if stale else 1.0,
            fresh_error=self._fresh_error,
        )

    def _rewards(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for group in self._groups:
            given = [t.reward for t in group.trajectories if t.reward is not None]
            found.setdefault(group.task, []).extend(given)
        return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
