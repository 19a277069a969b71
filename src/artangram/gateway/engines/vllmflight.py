"""A request on its way through a vLLM server: what was given out, and what is held back."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from artangram.core.rollout.trajectory import VersionSpan
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
        self.held = TokenChunk((), (), version)
        """Whichever version sampled it."""
        self.is_holding = False
        self.has_begun = False
        self.reason: FinishReason | None = None
        """How the answer ended, until that is told."""
        self.reading: asyncio.Task[None] | None = None

    def hear(self, new: TokenChunk) -> None:
        """Give out what was sampled, or hold it until its version is known."""
        if self.is_holding:
            self.held = self.held.joined(new)
        elif new.token_ids:
            self.given += len(new.token_ids)
            self.items.put_nowait(new)

    def give_held(self, spans: Sequence[VersionSpan]) -> None:
        """`spans` say which version sampled which tokens of the whole answer."""
        for span in spans:
            start, stop = max(span.start - self.given, 0), max(span.end - self.given, 0)
            if stop > start and (some := self.held.part(start, stop)).token_ids:
                self.items.put_nowait(structs.replace(some, version=span.version))

    def end(self, found: int | None) -> None:
        """Tell how the answer ended, once, if it has."""
        if self.reason is not None:
            self.items.put_nowait(Finish(self.reason, found))
            self.reason = None
