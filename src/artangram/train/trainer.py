"""Groups in, the next version of the weights out.

- One `step` is one optimiser step per epoch, over all useful samples of the groups.
- Groups whose attempts all did equally well teach nothing and are left out. When too few samples
  remain, the step is skipped: the version stays. So it is when the gradient is not finite: weights
  that no engine would take are not made.
- Tokens of the current version must have the ratio 1: the trainer scores them as the engine did.
  `fresh_error` says how far off that is, in every report.
"""

import copy
import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from statistics import fmean

import msgspec
import torch
from msgspec import Struct, structs
from torch import Tensor
from torch.nn import Module

from artangram.core.errors import BadInput
from artangram.core.rollout.trajectory import Group
from artangram.models.causal import CausalModel, score
from artangram.models.directory import WEIGHTS_NAME, load_weights, save_weights
from artangram.train import losses
from artangram.train.backend import SingleProcess, TrainBackend, whole_number
from artangram.train.learner import TeacherLogprobs
from artangram.train.losses import BatchShare, PolicyLoss, Tokens
from artangram.train.samples import (
    Rows,
    Sample,
    micro_batches,
    num_attempts,
    rows_of,
    samples_of,
    share_of,
)
from artangram.train.settings import TrainSettings
from artangram.train.state import (
    check_optimiser_state,
    optimiser_state,
    plainly_full,
    set_optimiser_state,
)
from artangram.train.tally import StepMetrics, StepTally

logger = logging.getLogger(__name__)

OPTIMISER_NAME = "optimiser.pt"
POSITION_NAME = "trainer.json"
UNREADABLE = (
    OSError,
    EOFError,
    msgspec.MsgspecError,
    RuntimeError,
    UnpicklingError,
    BadInput,
)
"""What the files of a checkpoint are when they were cut short or written by another program."""


MOST_MISMATCH = 0.01
"""Divergence of trainer and engine on fresh tokens, in nats, above which a step warns."""


class Position(Struct, frozen=True, kw_only=True):
    """How far a trainer has come."""

    version: int
    steps: int


class Trainer:
    """See the module. Not thread-safe: one step at a time."""

    def __init__(
        self, model: CausalModel, settings: TrainSettings, *, backend: TrainBackend | None = None
    ) -> None:
        self.model = model
        self.settings = settings
        self.version = 0
        self.steps = 0
        self._has_warned = False
        self._backend = backend or SingleProcess()
        self._reference = copy.deepcopy(model) if settings.has_reference else None
        self._backend.prepare(model)
        self.optimiser = torch.optim.AdamW(
            model.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    @property
    def max_context(self) -> int:
        return self.model.max_context

    def close(self) -> None:
        """It started nothing that has to end."""

    def __repr__(self) -> str:
        return f"<Trainer at version {self.version}: {self.settings.loss}>"

    def step(
        self, groups: Sequence[Group], *, teachers: TeacherLogprobs | None = None
    ) -> StepMetrics:
        """Learn from these groups; the report says what happened."""
        with self._beside_weights():
            return self._step(groups, teachers=teachers or {})

    def _step(self, groups: Sequence[Group], *, teachers: TeacherLogprobs) -> StepMetrics:
        samples = samples_of(groups, self.settings)
        tally = StepTally(groups)
        self.steps += 1
        attempts = num_attempts(samples)
        if attempts < max(1, self.settings.min_samples):
            why = (
                f"{attempts} useful attempts are fewer than min_samples {self.settings.min_samples}"
            )
            return tally.report(version=self.version, samples=attempts, why_skipped=why)
        share = share_of(samples, budget=self.settings.budget)
        batches = self._batches(samples)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.lr * self._warmth * (0.1 + 0.9 * self._left)
        has_learned = self._learned(batches, share, tally, teachers=teachers)
        self.version += has_learned
        tally.join(self._backend)
        why = "" if has_learned else "its gradient is not finite"
        report = tally.report(version=self.version, samples=attempts, why_skipped=why)
        self._warn(report)
        return structs.replace(report, teacher_gap=_gap(samples, teachers))

    def _warn(self, report: StepMetrics) -> None:
        """Once: an engine that finds tokens far more or less likely spoils what is learned."""
        if report.mismatch_kl > MOST_MISMATCH and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "step %d: engine and trainer disagree (mismatch KL %.3g, above %g); compute both "
                "in the same precision, or set `correction`",
                *(self.steps, report.mismatch_kl, MOST_MISMATCH),
            )

    def _learned(
        self,
        batches: Sequence["_Batch"],
        share: BatchShare,
        tally: StepTally,
        *,
        teachers: TeacherLogprobs,
    ) -> bool:
        """Make all epochs, up to one that would spoil the weights; whether there was any."""
        for epoch in range(self.settings.epochs):
            if not self._epoch(batches, share, tally, teachers=teachers):
                logger.warning("step %d: epoch %d has no finite gradient", self.steps, epoch + 1)
                return epoch > 0
        return True

    def save(self, directory: Path) -> None:
        """Everything the next step depends on, as files of `directory`, for any backend."""
        # The collective part first: if rank 0 cannot write, no rank waits for it.
        optimiser = optimiser_state(self._module, self.optimiser)
        self.save_weights(directory)
        if self._backend.is_first:
            with plainly_full():
                torch.save(optimiser, directory / OPTIMISER_NAME)
            position = Position(version=self.version, steps=self.steps)
            (directory / POSITION_NAME).write_bytes(msgspec.json.encode(position))

    def save_weights(self, directory: Path) -> None:
        """The weights alone. All processes call this, and the first of them writes."""
        with self._backend.whole(self.model):
            if self._backend.is_first:
                with plainly_full():
                    save_weights(self.model.tensors(), directory / WEIGHTS_NAME)

    def restore(self, directory: Path) -> None:
        """Go on where any trainer's `save` was. Raises `BadInput` and changes nothing if not."""
        try:
            position = msgspec.json.decode((directory / POSITION_NAME).read_bytes(), type=Position)
            optimiser = torch.load(directory / OPTIMISER_NAME, weights_only=True)
            weights = load_weights(directory)
        except UNREADABLE as error:
            fix = "remove it to resume from the one before"
            raise BadInput(str(directory), f"cannot be read: {error}", fix) from error
        check_optimiser_state(self._module, optimiser)
        self._backend.assign(self.model, weights)
        set_optimiser_state(self._module, self.optimiser, optimiser)
        self.version, self.steps = position.version, position.steps

    def _batches(self, samples: Sequence[Sample]) -> list["_Batch"]:
        """This process's part; a rank with fewer micro-batches adds idle rounds."""
        settings = self.settings
        own = micro_batches(
            self._backend.part(samples), max_tokens=settings.max_tokens, apart=settings.tasks
        )
        missing = self._backend.rounds(len(own)) - len(own)
        return [self._batch(part) for part in own] + [
            self._batch(samples[:1], is_idle=True) for _ in range(missing)
        ]

    def _batch(self, samples: Sequence[Sample], *, is_idle: bool = False) -> "_Batch":
        rows = rows_of(samples, version=self.version)
        return _Batch(samples, rows, reference=self._referred(rows), is_idle=is_idle)

    def _epoch(
        self,
        batches: Sequence["_Batch"],
        share: BatchShare,
        tally: StepTally,
        *,
        teachers: TeacherLogprobs,
    ) -> bool:
        """One optimiser step; whether its gradient was finite, without which none is made."""
        self.optimiser.zero_grad(set_to_none=True)
        for batch in batches:
            tokens = self._tokens(batch)
            if batch.is_idle:
                torch.autograd.backward(0.0 * tokens.logprobs.sum())
                continue
            loss, is_clipped = self._loss(tokens, share, batch=batch, teachers=teachers)
            torch.autograd.backward(loss)
            tally.add(tokens, loss, is_first=batch.old is None)
            tally.add_clipped(is_clipped)
            # Of the step's start, whatever the epoch: no weights have changed before the first.
            batch.old = tokens.old
        parameters = list(self.model.parameters())
        self._backend.add_gradients(parameters)
        norm = whole_number(torch.nn.utils.clip_grad_norm_(parameters, self.settings.max_norm))
        if not math.isfinite(norm):
            return False
        tally.grad_norm = norm
        self.optimiser.step()
        return True

    def _tokens(self, batch: "_Batch") -> Tokens:
        rows = batch.rows
        scores = score(self.model, rows.packed, at=rows.at, temperature=rows.heat)
        return Tokens(
            logprobs=scores.logprobs,
            old=scores.logprobs.detach() if batch.old is None else batch.old,
            behaviour=rows.behaviour,
            advantages=rows.advantages,
            sequence=rows.sequence,
            lengths=rows.lengths,
            stale=rows.stale,
            entropy=scores.entropy,
            reference=batch.reference,
        )

    @torch.no_grad()
    def _referred(self, rows: Rows) -> Tensor | None:
        if self._reference is None:
            return None
        return score(self._reference, rows.packed, at=rows.at, temperature=rows.heat).logprobs

    def _loss(
        self, tokens: Tokens, share: BatchShare, *, batch: "_Batch", teachers: TeacherLogprobs
    ) -> PolicyLoss:
        rule = self.settings.rule(batch.samples[0].task)
        if self.settings.loss == "distillation":
            said, weights = _said_by(teachers, batch.samples)
            loss = losses.distillation(
                tokens, share, teachers=said, weights=weights, correction=rule.correction
            )
            is_clipped = torch.zeros_like(tokens.old, dtype=torch.bool)
        else:
            loss, is_clipped = losses.policy_loss(tokens, share, rule)
        if weight := self.settings.entropy * self._left:
            loss = loss + losses.entropy_bonus(tokens, share, weight=weight)
        return PolicyLoss(loss, is_clipped)

    def _beside_weights(self) -> AbstractContextManager[object]:
        """While it lasts, new tensors are made where the weights are."""
        device = next(self.model.parameters()).device
        return nullcontext() if device.type == "cpu" else device

    @property
    def _left(self) -> float:
        """What is left of what fades; all of it if it never does."""
        steps = self.settings.fade_steps
        return max(0.0, 1 - (self.steps - 1) / steps) if steps else 1.0

    @property
    def _warmth(self) -> float:
        """The part of the rate that its warm-up has reached."""
        return min(1.0, self.steps / max(self.settings.warmup_steps, 1))

    @property
    def _module(self) -> Module:
        assert isinstance(self.model, Module), "every model is one"
        return self.model


@dataclass(slots=True)
class _Batch:
    """A micro-batch, and what its tokens' logprobs were when the step began."""

    samples: Sequence[Sample]
    rows: Rows
    reference: Tensor | None
    """By the model that the run began with: the same in every epoch."""
    old: Tensor | None = None
    is_idle: bool = False
    """It teaches nothing: other processes have one more."""


def _said_by(teachers: TeacherLogprobs, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """Every teacher's logprobs in one row each; a teacher that a sample lacks weighs nothing."""
    if missing := [s.trajectory for s in samples if not teachers.get(s.trajectory)]:
        fix = "give `step` what they say of every attempt; `examples/distillation.py` does"
        raise BadInput("teachers", f"{missing[0]} has no teacher", fix)
    most = max(len(teachers[sample.trajectory]) for sample in samples)
    said: list[list[float]] = [[] for _ in range(most)]
    weights: list[list[float]] = [[] for _ in range(most)]
    for sample in samples:
        own, length = teachers[sample.trajectory], len(sample.sampled)
        part = slice(sample.before, sample.before + length)
        for k in range(most):
            said[k] += own[k][part] if k < len(own) else [0.0] * length
            weights[k] += [float(k < len(own))] * length
    return torch.tensor(said), torch.tensor(weights)


def _gap(samples: Sequence[Sample], teachers: TeacherLogprobs) -> float:
    """By how much the student found its tokens likelier than its teachers, on average."""
    gaps = [
        own - fmean(each)
        for sample in samples
        if (said := teachers.get(sample.trajectory))
        for own, *each in zip(
            sample.behaviour,
            *(one[sample.before : sample.before + len(sample.sampled)] for one in said),
            strict=True,
        )
    ]
    return fmean(gaps) if gaps else 0.0
