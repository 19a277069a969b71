"""A request on the roofline engine: what is left to read, what was written, what came of it."""

import asyncio
from collections import deque

from artangram.gateway.engines.protocol import (
    Cache,
    EngineRequest,
    Finish,
    FinishReason,
    TokenChunk,
)


class RooflineFlight:
    """A request under way: waiting, then read, then written or handed over."""

    __slots__ = (
        "base",
        "begun",
        "cache",
        "given",
        "is_handed_over",
        "items",
        "news",
        "reason",
        "request",
        "to_read",
        "tokens",
    )

    def __init__(
        self, request: EngineRequest, *, cache: Cache | None = None, is_handed_over: bool = False
    ) -> None:
        self.request = request
        self.cache = cache
        """What another replica has read of it."""
        self.is_handed_over = is_handed_over
        """It is only read, for another replica."""
        self.tokens: tuple[int, ...] = ()
        self.reason = FinishReason.STOP
        self.to_read = 0.0
        self.given = 0
        #: The engine's count of iterations when writing began, and what was given before.
        self.begun: float | None = None
        self.base = 0
        self.items: deque[TokenChunk | Finish | Cache] = deque()
        self.news = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        return self.begun is not None

    @property
    def context(self) -> int:
        return len(self.request.prompt) + self.given

    @property
    def most(self) -> int:
        """Tokens of memory it may come to need."""
        return len(self.request.prompt) + len(self.tokens)

    def tell(self, item: TokenChunk | Finish | Cache) -> None:
        self.items.append(item)
        self.news.set()
