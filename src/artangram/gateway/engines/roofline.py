"""An engine without a model that takes as long as a real one would: for simulated clusters.

- Continuous batching: every iteration writes a token of each running request and reads a chunk of
  the prompts that wait, and takes what the roofline says. Between two events nothing changes, so
  time jumps from event to event, and a thousand tokens cost as little as one.
- Requests start in order as long as their contexts fit into memory.
- What was read stays in the prefix cache (`prefixes`) beside the running contexts while memory
  lasts: for the next turn of a session, and for siblings that begin alike.
- New weights invalidate all caches: running requests are read again before they go on.
- Caches for other replicas leave over the replica's link, one after the other; a replica that takes
  one has all of it.
- Answers come from a script. All waiting is on the loop's time.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from pathlib import Path

from msgspec import structs

from artangram.gateway.engines.flights import FlightBooks
from artangram.gateway.engines.protocol import (
    BadWeights,
    Cache,
    EngineRequest,
    Finish,
    FinishReason,
    Stats,
    TokenChunk,
)
from artangram.gateway.engines.rooflineflight import (
    FlightPrefixes,
    RooflineFlight,
    next_chunk,
)
from artangram.gateway.engines.scripted import Script, is_directory, planned
from artangram.gateway.hardware import Roofline

LINK = 50e9
"""Bytes per second from one replica to another: a network card of 400 Gb/s."""

MOST_ITERATIONS = 512.0
"""In one jump: contexts grow meanwhile, and with them the time of an iteration."""

_ROUNDING = 1e-4
"""Of an iteration: timers may fire a hair early, and an iteration is never nothing."""


class RooflineEngine(FlightBooks[RooflineFlight]):
    """See `protocol.Engine` and `protocol.Handover`."""

    def __init__(
        self,
        script: Script,
        roofline: Roofline,
        *,
        name: str = "roofline",
        max_context: int = 32_768,
        max_running: int = 256,
        hit_rate: float = 1.0,
        load_s: float = 0.0,
        chunk_tokens: int | None = None,
        link: float = LINK,
        version: int = 0,
    ) -> None:
        """`chunk_tokens` are given at once; without it all that nothing interrupts.

        `hit_rate` is the share of what the cache holds that is found: below 1 for what a model of
        the cache does not know.
        """
        super().__init__(name=name, max_context=max_context, version=version)
        self.cache_kind = roofline.model.name
        self.roofline = roofline
        self._capacity = roofline.capacity
        self._script = script
        self._max_running = max_running
        self._load_s = load_s
        self._most_iterations = MOST_ITERATIONS if chunk_tokens is None else float(chunk_tokens)
        self._is_chatty = chunk_tokens is not None
        self._link = link
        self._link_is_free_at = 0.0
        self._waiting: deque[RooflineFlight] = deque()
        self._reading: deque[RooflineFlight] = deque()
        self._writing: dict[str, RooflineFlight] = {}
        #: When each writing flight has all its tokens, in iterations; some have left.
        self._ends: list[tuple[float, int, RooflineFlight]] = []
        self._order = count()
        self._prefixes = FlightPrefixes(hit_rate=hit_rate)
        self._reserved = 0
        self._context = 0.0
        self._iterations = 0.0
        self._iteration_s = 1.0
        self._chunk = 0.0
        self._updated_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._read_tokens = 0.0
        self.busy_s = 0.0
        """While there was anything to do."""

    async def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        async with aclosing(self._flown(RooflineFlight(request, cache=cache))) as items:
            async for item in items:
                assert not isinstance(item, Cache)
                yield item

    @asynccontextmanager
    async def handing(self, request: EngineRequest) -> AsyncIterator[Cache | None]:
        async with aclosing(self._flown(RooflineFlight(request, is_handed_over=True))) as items:
            item = await anext(items)
        if isinstance(item, Cache):
            item = await self._moved(item)
        yield item if isinstance(item, Cache) else None

    async def _moved(self, cache: Cache) -> Cache:
        """Wait until all of it has gone through the link."""
        now = asyncio.get_running_loop().time()
        begins_at = max(now, self._link_is_free_at)
        self._link_is_free_at = begins_at + cache.num_bytes / self._link
        move_s = self._link_is_free_at - now
        await asyncio.sleep(move_s)
        self._raise_if_gone()
        return structs.replace(cache, move_s=move_s)

    async def _flown(
        self, flight: RooflineFlight
    ) -> AsyncGenerator[TokenChunk | Finish | Cache, None]:
        """What comes of a flight, to its end."""
        request = flight.request
        self._board(request, flight)
        if not flight.is_handed_over:
            said = planned(self._script, request, max_context=self.max_context)
            flight.tokens, flight.reason = said
        self._advance()
        self._waiting.append(flight)
        self._replan()
        try:
            while True:
                while flight.items:
                    item = flight.items.popleft()
                    yield item
                    if not isinstance(item, TokenChunk):
                        return
                self._raise_if_gone()
                flight.news.clear()
                await flight.news.wait()
        finally:
            self._forget(flight)

    def _checked(self, request: EngineRequest) -> int:
        return self._prefixes.kept(request.session)

    async def abort(self, request_id: str) -> None:
        self._raise_if_gone()
        if (flight := self._flights.get(request_id)) is not None:
            self._advance()
            self._give(flight)
            if not flight.has_left:
                self._leave(flight)
            flight.tell(Finish(FinishReason.ABORT, flight.found))
            self._replan()

    async def pause(self) -> None:
        self._raise_if_gone()
        self._advance()
        for flight in self._writing.values():
            self._give(flight)
        self._is_paused = True
        self._replan()

    async def resume(self) -> None:
        self._raise_if_gone()
        self._advance()
        self._is_paused = False
        self._replan()

    async def load(self, version: int, path: Path) -> None:
        self._raise_if_gone()
        await asyncio.sleep(self._load_s)
        self._raise_if_gone()
        if not is_directory(path):
            raise BadWeights(f"{self.name}: version {version} cannot be loaded from {path}")
        self._advance()
        self._void()
        self._version = version
        self._replan()

    def stats(self) -> Stats:
        self._advance()
        sampled = self._sampled_tokens + self._not_given()
        read = round(self._read_tokens)
        return structs.replace(super().stats(), prompt_tokens=read, sampled_tokens=sampled)

    async def aclose(self) -> None:
        self.crash("it was closed")

    def crash(self, reason: str = "it crashed") -> None:
        """End all requests: the engine is gone."""
        self._gone = self._gone or reason
        self._stop_timer()
        for flight in self._flights.values():
            flight.items.clear()
            flight.news.set()

    def _advance(self) -> None:
        """Advance the state to the current time."""
        now = asyncio.get_running_loop().time()
        elapsed_s, self._updated_at = now - self._updated_at, now
        if self._is_paused or not (self._reading or self._writing):
            return
        self.busy_s += elapsed_s
        iterations = elapsed_s / self._iteration_s
        self._iterations += iterations
        self._context += iterations * len(self._writing)
        if self._reading:
            read = min(iterations * self._chunk, self._reading[0].to_read)
            self._reading[0].to_read -= read
            self._read_tokens += read

    def _replan(self) -> None:
        """Settle what is complete, start what fits, and look again at the next event."""
        self._stop_timer()
        if self._gone or self._is_paused:
            return
        self._settle()
        self._admit()
        if self._reading or self._writing:
            iterations = self._next_event()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(iterations * self._iteration_s, self._on_timer)

    def _on_timer(self) -> None:
        self._advance()
        if self._is_chatty:
            for flight in self._writing.values():
                self._give(flight)
        self._replan()

    def _settle(self) -> None:
        while self._reading and self._reading[0].to_read <= _ROUNDING:
            flight = self._reading.popleft()
            self._prefixes.keep(flight)
            if flight.is_handed_over:
                self._hand_over(flight)
            else:
                self._write(flight)
            if self._reading:
                self._look_up(self._reading[0])
        while self._ends and self._ends[0][0] <= self._iterations + _ROUNDING:
            end, _, flight = heappop(self._ends)
            if self._is_current(flight, end):
                self._give(flight)
                self._leave(flight)
                flight.tell(Finish(flight.reason, flight.found))

    def _is_current(self, flight: RooflineFlight, end: float) -> bool:
        """Does this end belong to what the flight does now?"""
        is_writing = self._writing.get(flight.request.id) is flight
        return is_writing and self._end_of(flight) == end

    def _end_of(self, flight: RooflineFlight) -> float:
        assert flight.begun is not None
        return flight.begun + len(flight.tokens) - flight.base

    def _write(self, flight: RooflineFlight) -> None:
        """The last token of its context was read: that yields its next token."""
        flight.begun = self._iterations - 1.0
        flight.base = flight.given
        self._writing[flight.request.id] = flight
        self._context += flight.context
        heappush(self._ends, (self._end_of(flight), next(self._order), flight))
        self._give(flight)

    def _hand_over(self, flight: RooflineFlight) -> None:
        flight.has_left = True
        self._let_go(flight)
        flight.tell(flight.handed(version=self._version, token_bytes=self.roofline.model.kv_bytes))

    def _admit(self) -> None:
        while self._waiting:
            flight = self._waiting[0]
            running = len(self._reading) + len(self._writing)
            is_full = self._reserved + flight.most > self._capacity
            if running and (is_full or running >= self._max_running):
                return
            self._waiting.popleft()
            self._reserved += flight.most
            self._look_up(flight)
            self._prefixes.shrink(self._capacity - self._reserved)
            self._reading.append(flight)

    def _look_up(self, flight: RooflineFlight) -> None:
        """What must be read of it; again when its turn comes: others were read meanwhile."""
        request, cache = flight.request, flight.cache
        if flight.to_read != flight.unread:
            return  # Reading has begun, or does not depend on this cache.
        self._prefixes.find(flight)
        if cache is not None and (cache.version, cache.handle) == (self._version, request.session):
            self._taken_tokens += cache.tokens
            flight.to_read = float(len(request.prompt) - cache.tokens)

    def _let_go(self, flight: RooflineFlight) -> None:
        """What was read for it stays as long as there is room."""
        self._reserved -= flight.most
        self._prefixes.let_go(flight)
        self._prefixes.shrink(self._capacity - self._reserved)

    def _next_event(self) -> float:
        """Iterations until something ends; what one of them takes is noted."""
        self._chunk = next_chunk(self._reading, most=float(self.roofline.prefill_chunk))
        iterations = self._most_iterations
        if self._reading:
            iterations = min(iterations, self._reading[0].to_read / self._chunk)
        while self._ends and not self._is_current(self._ends[0][2], self._ends[0][0]):
            heappop(self._ends)
        if self._ends:
            iterations = min(iterations, self._ends[0][0] - self._iterations)
        batch = len(self._writing)
        self._iteration_s = self.roofline.iteration_s(
            batch,
            context=self._context + 0.5 * iterations * batch,
            prefill=self._chunk,
            seen=self._seen(),
        )
        return iterations

    def _seen(self) -> float:
        """Tokens before one that is read now: those before its part of the first prompt in line."""
        if not self._reading:
            return 0.0
        first = self._reading[0]
        return first.context - first.to_read + 0.5 * min(self._chunk, first.to_read)

    def _give(self, flight: RooflineFlight) -> None:
        """Hand out the tokens that are written."""
        if self._writing.get(flight.request.id) is not flight:
            return
        tokens = flight.tokens[flight.given : self._written(flight)]
        if tokens:
            flight.given += len(tokens)
            self._sampled_tokens += len(tokens)
            flight.tell(TokenChunk(tokens, (0.0,) * len(tokens), self._version))

    def _written(self, flight: RooflineFlight) -> int:
        assert flight.begun is not None
        return flight.base + int(self._iterations - flight.begun + _ROUNDING)

    def _not_given(self) -> int:
        """Tokens that are written and wait for an event to be handed out."""
        return sum(self._written(flight) - flight.given for flight in self._writing.values())

    def _void(self) -> None:
        """Nothing that was read counts any more; what is written is given out before."""
        for flight in self._writing.values():
            self._give(flight)
        again = [*self._writing.values(), *self._reading]
        for flight in again:
            flight.begun, flight.to_read, flight.unread = None, float(flight.context), 0.0
        self._writing.clear()
        self._ends.clear()
        self._prefixes.clear()
        self._context = 0.0
        self._reading = deque(again)

    def _leave(self, flight: RooflineFlight) -> None:
        """Remove it from the queue it is in."""
        flight.has_left = True
        if self._writing.pop(flight.request.id, None) is not None:
            assert flight.begun is not None
            written = flight.base + self._iterations - flight.begun
            self._context -= len(flight.request.prompt) + written - 1.0
            self._context = max(0.0, self._context) if self._writing else 0.0
            self._prefixes.keep(flight)
        elif flight in self._reading:
            self._reading.remove(flight)
        else:
            self._waiting.remove(flight)
            return
        self._let_go(flight)

    def _forget(self, flight: RooflineFlight) -> None:
        """The caller closed the stream."""
        del self._flights[flight.request.id]
        if not (self._gone or flight.has_left):
            self._advance()
            self._leave(flight)
            self._replan()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
