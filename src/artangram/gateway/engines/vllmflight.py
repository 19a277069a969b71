"""A request on its way through a vLLM server: what was given out, and what is held back."""

import asyncio

from artangram.gateway.engines.protocol import Cache, Finish, FinishReason, TokenChunk
from artangram.gateway.engines.vllmwire import Handle


class VllmFlight:
    """A request under way."""

    __slots__ = (
        "given",
        "handle",
        "has_begun",
        "held",
        "is_holding",
        "items",
        "reading",
        "reason",
        "version",
    )

    def __init__(self, version: int, *, handle: Handle | None = None) -> None:
        self.version = version
        self.handle = handle
        """What another server has read of it."""
        self.items: asyncio.Queue[TokenChunk | Finish | Cache | Exception] = asyncio.Queue()
        # No bound: it holds at most the answer of one request.
        self.given = 0
        self.held: list[tuple[int, float]] = []
        self.is_holding = False
        self.has_begun = False
        self.reason: FinishReason | None = None
        """How the answer ended, until that is told."""
        self.reading: asyncio.Task[None] | None = None

    def end(self, found: int | None) -> None:
        """Tell how the answer ended, once, if it has."""
        if self.reason is not None:
            self.items.put_nowait(Finish(self.reason, found))
            self.reason = None
