"""An engine without a model: it answers from a script, for tests and simulation.

- All waiting is on the loop's time, so it runs on a loop with virtual time.
- Without `token_s` the whole answer is one chunk; with it, a chunk is a token.
- `crash`, `hang` and `refuse` are the faults that real engines have.
- Any directory that exists holds weights.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from artangram.gateway.engines.flights import FlightBooks, name_of
from artangram.gateway.engines.protocol import (
    BadWeights,
    Cache,
    EngineRequest,
    Finish,
    FinishReason,
    TokenChunk,
)

Script = Callable[[EngineRequest], Sequence[int]]

_ROUNDING_S = 1e-9


class ScriptedPace(Struct, frozen=True, kw_only=True):
    """How long things take."""

    token_s: float = 0.0
    prompt_token_s: float = 0.0
    move_token_s: float = 0.0
    """To hand one over to another engine."""
    load_s: float = 0.0


AT_ONCE = ScriptedPace()


class _Flight:
    """A running request. `news` is set whenever its state changes."""

    __slots__ = ("has_begun", "is_aborted", "news")

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.is_aborted = False
        self.has_begun = False


class ScriptedEngine(FlightBooks[_Flight]):
    """See `protocol.Engine` and `protocol.Handover`."""

    cache_kind = "scripted"

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        pace: ScriptedPace = AT_ONCE,
        max_context: int = 4096,
        version: int = 0,
    ) -> None:
        super().__init__(name=name, max_context=max_context, version=version)
        self.pace = pace
        self._script = script
        self._answering = asyncio.Event()
        self._answering.set()
        self._refused: set[int] = set()

    async def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        flight = _Flight()
        self._board(request, flight)
        try:
            tokens, reason = planned(self._script, request, max_context=self.max_context)
            unread = len(request.prompt) - self._taken(request, cache)
            is_alive = await self._prefilled(unread, flight)
            for some in self._cut(tokens):
                is_alive = is_alive and await self._spent(self.pace.token_s, flight)
                if not is_alive:
                    break
                self._sampled_tokens += len(some)
                yield TokenChunk(some, (0.0,) * len(some), self._version)
            yield Finish(reason if is_alive else FinishReason.ABORT)
        finally:
            del self._flights[request.id]

    @asynccontextmanager
    async def handing(self, request: EngineRequest) -> AsyncIterator[Cache | None]:
        flight = _Flight()
        self._board(request, flight)
        tokens = len(request.prompt) - 1
        move_s = tokens * self.pace.move_token_s
        try:
            is_read = await self._prefilled(tokens, flight)
            cache = Cache(
                version=self._version,
                tokens=tokens,
                num_bytes=tokens,
                move_s=move_s,
                handle=name_of(request.prompt[:tokens]),
            )
            is_read = is_read and await self._spent(move_s, flight)
        finally:
            del self._flights[request.id]
        yield cache if is_read else None

    async def abort(self, request_id: str) -> None:
        await self._answer()
        if (flight := self._flights.get(request_id)) is not None:
            flight.is_aborted = True
            flight.news.set()

    async def pause(self) -> None:
        await self._answer()
        self._is_paused = True

    async def resume(self) -> None:
        await self._answer()
        self._is_paused = False
        self._tell_all()

    async def load(self, version: int, path: Path) -> None:
        await self._answer()
        await asyncio.sleep(self.pace.load_s)
        await self._answer()
        if version in self._refused or not is_directory(path):
            raise BadWeights(f"{self.name}: version {version} cannot be loaded from {path}")
        self._version = version

    async def aclose(self) -> None:
        self.crash("it was closed")

    def crash(self, reason: str = "it crashed") -> None:
        """End all requests: the engine is gone."""
        self._gone = self._gone or reason
        self._answering.set()
        self._tell_all()

    def hang(self) -> None:
        """Answer nothing and return from no call, until `go_on` or `crash`."""
        self._answering.clear()

    def go_on(self) -> None:
        """Stop hanging."""
        self._answering.set()
        self._tell_all()

    def refuse(self, version: int) -> None:
        """The weights of this version will be bad."""
        self._refused.add(version)

    def _taken(self, request: EngineRequest, cache: Cache | None) -> int:
        """Tokens of the prompt that need not be read."""
        if cache is None or cache.version != self._version:
            return 0
        if cache.handle != name_of(request.prompt[: cache.tokens]):
            return 0
        self._taken_tokens += cache.tokens
        return cache.tokens

    def _cut(self, tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
        if self.pace.token_s:
            return [(token,) for token in tokens]
        return [tokens] if tokens else []

    async def _prefilled(self, tokens: int, flight: _Flight) -> bool:
        """Spend the time of reading `tokens`; false if the request was aborted meanwhile."""
        if not await self._spent(self.pace.prompt_token_s * tokens, flight):
            return False
        self._prompt_tokens += tokens
        flight.has_begun = True
        return True

    async def _spent(self, seconds: float, flight: _Flight) -> bool:
        """Let time pass, however long we are paused; false if the request was aborted meanwhile."""
        now = asyncio.get_running_loop().time
        done_at = now() + seconds
        while True:
            self._raise_if_gone()
            is_stopped = self._is_paused or not self._answering.is_set()
            is_due = done_at - now() <= _ROUNDING_S and not is_stopped
            if flight.is_aborted or is_due:
                return not flight.is_aborted
            flight.news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if is_stopped else done_at):
                    await flight.news.wait()

    async def _answer(self) -> None:
        """Wait while the engine hangs."""
        await self._answering.wait()
        self._raise_if_gone()

    def _tell_all(self) -> None:
        for flight in self._flights.values():
            flight.news.set()


def planned(
    script: Script, request: EngineRequest, *, max_context: int
) -> tuple[tuple[int, ...], FinishReason]:
    """What the script says, as far as the request lets it."""
    sampling = request.sampling
    room = min(sampling.max_tokens, max_context - len(request.prompt))
    said = tuple(script(request))
    tokens = said[:room]
    places = [tokens.index(stop) for stop in sampling.stop_ids if stop in tokens]
    if places:
        return tokens[: min(places) + 1], FinishReason.STOP
    return tokens, FinishReason.LENGTH if len(said) >= room else FinishReason.STOP


def is_directory(path: Path) -> bool:
    return path.is_dir()
