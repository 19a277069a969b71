"""A request on the roofline engine: what is left to read, what was written, what came of it.

`FlightPrefixes` is what requests find in the engine's prefix cache, and leave there.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from artangram.gateway.engines.prefixes import PrefixCache, PrefixNode
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
        "found",
        "given",
        "has_left",
        "is_handed_over",
        "items",
        "news",
        "prefix",
        "reason",
        "request",
        "to_read",
        "tokens",
        "unread",
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
        self.unread = 0.0
        """What was to be read when it was looked up in the prefix cache."""
        self.prefix: PrefixNode | None = None
        """What it holds of the prefix cache."""
        self.found: int | None = None
        """Tokens of its prompt that were in the prefix cache."""
        self.given = 0
        self.has_left = False
        """The engine is done with it."""
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

    def handed(self, *, version: int, token_bytes: float) -> Cache:
        """What was read, for another replica; the last token is the writer's to read."""
        tokens = len(self.request.prompt) - 1
        return Cache(
            version=version,
            tokens=tokens,
            num_bytes=round(tokens * token_bytes),
            move_s=0.0,
            handle=self.request.session,
        )

    def tell(self, item: TokenChunk | Finish | Cache) -> None:
        self.items.append(item)
        self.news.set()


def next_chunk(reading: Iterable[RooflineFlight], *, most: float) -> float:
    """Tokens that one iteration reads of these prompts, in order."""
    chunk = 0.0
    for flight in reading:
        chunk += flight.to_read
        if chunk >= most:
            return most
    return chunk


class FlightPrefixes:
    """The prefix cache of an engine, as its requests use it."""

    def __init__(self, *, hit_rate: float) -> None:
        self._cache = PrefixCache()
        self._hit_rate = hit_rate
        """Of what is there."""

    def find(self, flight: RooflineFlight) -> None:
        """Note what must be read, and hold on to the rest."""
        request = flight.request
        if flight.prefix is not None:
            self._cache.release(flight.prefix)
        flight.prefix = self._cache.use(request.session, request.prompt)
        flight.found = int(self._hit_rate * flight.prefix.end)
        flight.to_read = flight.unread = float(len(request.prompt) - flight.found)

    def keep(self, flight: RooflineFlight) -> None:
        """All of its context was read or written, and is kept while the flight goes on."""
        assert flight.prefix is not None
        request, written = flight.request, flight.tokens[: flight.given]
        flight.prefix = self._cache.extend(request.session, flight.prefix, request.prompt, written)

    def kept(self, session: str) -> int:
        """Tokens of the session that the last of its requests left here."""
        return self._cache.stopped_at(session)

    def let_go(self, flight: RooflineFlight) -> None:
        """It has ended."""
        if flight.prefix is not None:
            self._cache.release(flight.prefix)
            flight.prefix = None

    def shrink(self, room: int) -> None:
        """Evict what has no room beside the running contexts."""
        self._cache.shrink(room)

    def clear(self) -> None:
        """New weights: nothing that was read counts any more."""
        self._cache.clear()
