"""The learner of a run: a trainer in this process, or one of several processes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from artangram.core.rollout.trajectory import Group
from artangram.train.tally import StepMetrics

TeacherLogprobs = Mapping[str, tuple[tuple[float, ...], ...]]
"""By trajectory: each teacher's logprobs of its sampled tokens."""


class LearnerGone(Exception):
    """A process of the trainer ended. What was learned since the last checkpoint is lost."""


class Learner(Protocol):
    """One verb at a time; each of them computes for long, so call it in a thread."""

    @property
    def version(self) -> int:
        """Of the weights as they are now."""
        ...

    @property
    def max_context(self) -> int:
        """The most tokens of a sequence that its model takes."""
        ...

    def step(
        self, groups: Sequence[Group], *, teachers: TeacherLogprobs | None = None
    ) -> StepMetrics:
        """Learn from these groups; for distillation, from what teachers say of them."""
        ...

    def save(self, directory: Path) -> None:
        """Everything the next step depends on, as files of `directory`."""
        ...

    def save_weights(self, directory: Path) -> None:
        """The weights alone."""
        ...

    def restore(self, directory: Path) -> None:
        """Go on where `save` was. Raises `BadInput` and changes nothing if it cannot."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...
