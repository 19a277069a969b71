"""An engine without a model that takes as long as one would: for clusters that are not there.

- Continuous batching: every iteration writes a token of each running request and reads a chunk of
  the prompts that wait, and takes what the roofline says. Between two events nothing changes, so
  time jumps from event to event, and a thousand tokens cost as little as one.
- Requests start in order as long as their contexts fit into memory.
- Prefixes of a session that was here before are read again only as far as the cache misses.
- New weights void all that was read: what runs is read again before it goes on.
- What is said comes from a script. All waiting is on the loop's time.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from heapq import heappop, heappush
from itertools import count
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import (
    BadWeights,
    Chunk,
    EngineGone,
    Finish,
    FinishReason,
    Request,
    Stats,
    refuse_unfit,
)
from artangram.gateway.engines.scripted import Script
from artangram.gateway.hardware import Roofline, new_tokens

MOST_ITERATIONS = 512.0
"""In one jump: contexts grow meanwhile, and with them the time of an iteration."""

MOST_HELD = 4096
"""Sessions whose prefix is kept."""

_ROUNDING = 1e-4
"""Of an iteration: timers may fire a hair early, and an iteration is never nothing."""


class _Flight:
    """A request under way: waiting, then read, then written."""

    __slots__ = (
        "base",
        "begun",
        "given",
        "items",
        "news",
        "reason",
        "request",
        "to_read",
        "tokens",
    )

    def __init__(self, request: Request, tokens: tuple[int, ...], reason: FinishReason) -> None:
        self.request = request
        self.tokens = tokens
        self.reason = reason
        self.to_read = 0.0
        self.given = 0
        #: The engine's count of iterations when writing began, and what was given before.
        self.begun: float | None = None
        self.base = 0
        self.items: deque[Chunk | Finish] = deque()
        self.news = asyncio.Event()

    @property
    def context(self) -> int:
        return len(self.request.prompt) + self.given

    @property
    def most(self) -> int:
        """Tokens of memory it may come to need."""
        return len(self.request.prompt) + len(self.tokens)

    def tell(self, item: Chunk | Finish) -> None:
        self.items.append(item)
        self.news.set()


class RooflineEngine:
    """See `protocol.Engine`."""

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
        version: int = 0,
    ) -> None:
        """`chunk_tokens` are given at once; without it all that nothing interrupts."""
        self.name = name
        self.max_context = max_context
        self.roofline = roofline
        self._script = script
        self._max_running = max_running
        self._hit_rate = hit_rate
        self._load_s = load_s
        self._most_iterations = MOST_ITERATIONS if chunk_tokens is None else float(chunk_tokens)
        self._is_chatty = chunk_tokens is not None
        self._version = version
        self._gone = ""
        self._is_paused = False
        self._flights: dict[str, _Flight] = {}
        self._waiting: deque[_Flight] = deque()
        self._reading: deque[_Flight] = deque()
        self._writing: dict[str, _Flight] = {}
        #: When each writing flight has all its tokens, in iterations; some have left.
        self._ends: list[tuple[float, int, _Flight]] = []
        self._order = count()
        self._held: OrderedDict[str, int] = OrderedDict()
        self._reserved = 0
        self._context = 0.0
        self._iterations = 0.0
        self._iteration_s = 1.0
        self._chunk = 0.0
        self._updated_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._prompt_tokens = 0.0
        self._sampled_tokens = 0
        self.busy_s = 0.0
        """While there was anything to do."""

    def __repr__(self) -> str:
        running = f"{len(self._writing)} writing, {len(self._reading)} reading"
        return f"<RooflineEngine {self.name}: version {self._version}, {running}>"

    async def stream(self, request: Request) -> AsyncGenerator[Chunk | Finish, None]:
        self._raise_if_gone()
        refuse_unfit(request, max_context=self.max_context)
        if request.id in self._flights:
            raise BadInput("id", f"{request.id} is under way", "give every request its own")
        flight = self._flights[request.id] = _Flight(request, *self._planned(request))
        self._advance()
        self._waiting.append(flight)
        self._replan()
        try:
            while True:
                while flight.items:
                    item = flight.items.popleft()
                    yield item
                    if isinstance(item, Finish):
                        return
                self._raise_if_gone()
                flight.news.clear()
                await flight.news.wait()
        finally:
            self._forget(flight)

    async def abort(self, request_id: str) -> None:
        self._raise_if_gone()
        if (flight := self._flights.get(request_id)) is not None:
            self._advance()
            self._give(flight)
            self._leave(flight)
            flight.tell(Finish(FinishReason.ABORT))
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
        if not _is_directory(path):
            raise BadWeights(f"{self.name}: version {version} cannot be loaded from {path}")
        self._advance()
        self._void()
        self._version = version
        self._replan()

    def stats(self) -> Stats:
        self._advance()
        running = len(self._writing)
        return Stats(
            version=self._version,
            running=running,
            waiting=len(self._flights) - running,
            is_paused=self._is_paused,
            prompt_tokens=round(self._prompt_tokens),
            sampled_tokens=self._sampled_tokens + self._not_given(),
        )

    async def aclose(self) -> None:
        self.crash("it was closed")

    def crash(self, reason: str = "it crashed") -> None:
        """From now on it is gone."""
        self._gone = self._gone or reason
        self._stop_timer()
        for flight in self._flights.values():
            flight.items.clear()
            flight.news.set()

    def _planned(self, request: Request) -> tuple[tuple[int, ...], FinishReason]:
        """What the script says, as far as the request lets it."""
        sampling = request.sampling
        room = min(sampling.max_tokens, self.max_context - len(request.prompt))
        script = tuple(self._script(request))
        tokens = script[:room]
        places = [tokens.index(stop) for stop in sampling.stop_ids if stop in tokens]
        if places:
            return tokens[: min(places) + 1], FinishReason.STOP
        return tokens, FinishReason.LENGTH if len(script) >= room else FinishReason.STOP

    def _advance(self) -> None:
        """Let happen what happened since the last look."""
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
            self._prompt_tokens += read

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
            self._write(self._reading.popleft())
        while self._ends and self._ends[0][0] <= self._iterations + _ROUNDING:
            end, _, flight = heappop(self._ends)
            if self._is_current(flight, end):
                self._give(flight)
                self._leave(flight)
                self._remember(flight)
                flight.tell(Finish(flight.reason))

    def _is_current(self, flight: _Flight, end: float) -> bool:
        """Does this end belong to what the flight does now?"""
        is_writing = self._writing.get(flight.request.id) is flight
        return is_writing and self._end_of(flight) == end

    def _end_of(self, flight: _Flight) -> float:
        assert flight.begun is not None
        return flight.begun + len(flight.tokens) - flight.base

    def _write(self, flight: _Flight) -> None:
        """The last token of its context was read: that yields its next token."""
        flight.begun = self._iterations - 1.0
        flight.base = flight.given
        self._writing[flight.request.id] = flight
        self._context += flight.context
        heappush(self._ends, (self._end_of(flight), next(self._order), flight))
        self._give(flight)

    def _admit(self) -> None:
        while self._waiting:
            flight = self._waiting[0]
            running = len(self._reading) + len(self._writing)
            is_full = self._reserved + flight.most > self.roofline.capacity
            if running and (is_full or running >= self._max_running):
                return
            self._waiting.popleft()
            self._reserved += flight.most
            cached = self._held.get(flight.request.session, 0) if flight.request.session else 0
            length = len(flight.request.prompt)
            flight.to_read = float(new_tokens(length, cached=cached, hit_rate=self._hit_rate))
            self._reading.append(flight)

    def _next_event(self) -> float:
        """Iterations until something ends; what one of them takes is noted."""
        left = sum(flight.to_read for flight in self._reading)
        self._chunk = min(float(self.roofline.prefill_chunk), left)
        iterations = self._most_iterations
        if self._reading:
            iterations = min(iterations, self._reading[0].to_read / self._chunk)
        while self._ends and not self._is_current(self._ends[0][2], self._ends[0][0]):
            heappop(self._ends)
        if self._ends:
            iterations = min(iterations, self._ends[0][0] - self._iterations)
        batch = len(self._writing)
        context = self._context + 0.5 * iterations * batch
        self._iteration_s = self.roofline.iteration_s(batch, context=context, prefill=self._chunk)
        return iterations

    def _give(self, flight: _Flight) -> None:
        """Hand out the tokens that are written."""
        if self._writing.get(flight.request.id) is not flight:
            return
        tokens = flight.tokens[flight.given : self._written(flight)]
        if tokens:
            flight.given += len(tokens)
            self._sampled_tokens += len(tokens)
            flight.tell(Chunk(tokens, (0.0,) * len(tokens), self._version))

    def _written(self, flight: _Flight) -> int:
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
            flight.begun, flight.to_read = None, float(flight.context)
        self._writing.clear()
        self._ends.clear()
        self._held.clear()
        self._context = 0.0
        self._reading = deque(again)

    def _leave(self, flight: _Flight) -> None:
        """It takes no part any more, wherever it was."""
        if self._writing.pop(flight.request.id, None) is not None:
            assert flight.begun is not None
            written = flight.base + self._iterations - flight.begun
            self._context -= len(flight.request.prompt) + written - 1.0
            self._context = max(0.0, self._context) if self._writing else 0.0
        elif flight in self._reading:
            self._reading.remove(flight)
        elif flight in self._waiting:
            self._waiting.remove(flight)
            return
        else:
            return
        self._reserved -= flight.most

    def _remember(self, flight: _Flight) -> None:
        if flight.request.session:
            self._held[flight.request.session] = flight.context
            self._held.move_to_end(flight.request.session)
            if len(self._held) > MOST_HELD:
                self._held.popitem(last=False)

    def _forget(self, flight: _Flight) -> None:
        """Nobody listens any more."""
        del self._flights[flight.request.id]
        if not self._gone:
            self._advance()
            self._leave(flight)
            self._replan()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _raise_if_gone(self) -> None:
        if self._gone:
            raise EngineGone(f"{self.name}: {self._gone}")


def _is_directory(path: Path) -> bool:
    return path.is_dir()
