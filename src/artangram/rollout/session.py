"""What the rollout needs of the door to the model. `artangram.gateway.Gateway` offers it."""

from typing import Protocol

from artangram.core.trajectory import Segment
from artangram.gateway.engines.protocol import FinishReason, Sampling
from artangram.models.tokenizer import Tokenizer


class Reply(Protocol):
    """What the model said."""

    @property
    def text(self) -> str: ...

    @property
    def finish(self) -> FinishReason: ...


class Session(Protocol):
    """One trajectory's conversation; it keeps the very tokens."""

    @property
    def oldest_version(self) -> int | None:
        """Of the oldest sampled token, those of a running turn included."""
        ...

    def segments(self) -> tuple[Segment, ...]: ...

    async def generate(self, new: str, sampling: Sampling) -> Reply: ...

    async def close(self) -> None:
        """End what runs. The segments stay readable."""
        ...


class Door(Protocol):
    def open(
        self, session_id: str, *, task: str = "", tokenizer: Tokenizer | None = None
    ) -> Session: ...
