"""What the rollout needs of the door to the model. `artangram.gateway.Gateway` options it."""

from typing import Protocol

from artangram.core.rollout.trajectory import Segment
from artangram.gateway.engines.protocol import FinishReason, Sampling
from artangram.models.tokenizer import Tokenizer


class SampledReply(Protocol):
    """What the model said."""

    @property
    def text(self) -> str: ...

    @property
    def finish(self) -> FinishReason: ...


class ModelSession(Protocol):
    """One trajectory's conversation; it keeps the very tokens."""

    @property
    def oldest_version(self) -> int | None:
        """Of the oldest sampled token, those of a running turn included."""
        ...

    def segments(self) -> tuple[Segment, ...]: ...

    async def generate(self, new: str, sampling: Sampling) -> SampledReply: ...

    async def close(self) -> None:
        """End what runs. The segments stay readable."""
        ...


class ModelClient(Protocol):
    def open(
        self, session_id: str, *, task: str = "", tokenizer: Tokenizer | None = None
    ) -> ModelSession: ...
