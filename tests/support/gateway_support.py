"""An engine whose every token is given by the test, and a tokenizer one can read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from busy_machine import PATIENCE_S

from artangram.gateway.engines.protocol import (
    Alternatives,
    EngineGone,
    EngineRequest,
    Finish,
    FinishReason,
    Stats,
    TokenChunk,
)
from artangram.models.vocabulary import Vocabulary

TOKEN = "a-secret"
_SIGNS = '<call> {"}:,[]_.!? 0123456789'
WORDS = Vocabulary.of(["the cat sat on a mat and said hello to dog", "name arguments", _SIGNS])


class PuppetEngine:
    """Does what it is told: `say`, `end`, `die`. Remembers what it was asked."""

    def __init__(self, name: str, *, max_context: int = 1000, version: int = 0) -> None:
        self.name = name
        self.max_context = max_context
        self.version = version
        self.asked: list[EngineRequest] = []
        self.aborted: list[str] = []
        self._lines: dict[str, asyncio.Queue[TokenChunk | Finish | EngineGone]] = {}
        self._is_dead = False
        self._came = asyncio.Event()

    @property
    def running(self) -> list[str]:
        return list(self._lines)

    async def next_request(self) -> EngineRequest:
        """The newest one, once one is running."""
        return (await self.next_requests(1))[-1]

    async def next_requests(self, count: int) -> list[EngineRequest]:
        """All, once so many are running."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self._lines) < count:
                self._came.clear()
                await self._came.wait()
        return self.asked

    def say(
        self, request: EngineRequest, *token_ids: int, tops: tuple[Alternatives, ...] = ()
    ) -> None:
        logprobs = tuple(-float(token) for token in token_ids)
        self._lines[request.id].put_nowait(TokenChunk(token_ids, logprobs, self.version, tops))

    def end(
        self,
        request: EngineRequest,
        reason: FinishReason = FinishReason.STOP,
        found: int | None = None,
    ) -> None:
        self._lines[request.id].put_nowait(Finish(reason, found))

    def die(self) -> None:
        self.crash(f"{self.name} died")

    def crash(self, reason: str) -> None:
        self._is_dead = True
        for line in self._lines.values():
            line.put_nowait(EngineGone(reason))

    async def stream(self, request: EngineRequest) -> AsyncIterator[TokenChunk | Finish]:
        self._alive()
        self.asked.append(request)
        line = self._lines[request.id] = asyncio.Queue()
        self._came.set()
        try:
            while True:
                item = await line.get()
                if isinstance(item, EngineGone):
                    raise item
                yield item
                if isinstance(item, Finish):
                    return
        finally:
            del self._lines[request.id]

    async def abort(self, request_id: str) -> None:
        self._alive()
        self.aborted.append(request_id)
        if request_id in self._lines:
            self._lines[request_id].put_nowait(Finish(FinishReason.ABORT))

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def load(self, version: int, path: Path) -> None:
        self.version = version

    def stats(self) -> Stats:
        return Stats(
            version=self.version,
            running=len(self._lines),
            waiting=0,
            is_paused=False,
            prompt_tokens=0,
            sampled_tokens=0,
        )

    async def aclose(self) -> None: ...

    def _alive(self) -> None:
        if self._is_dead:
            raise EngineGone(f"{self.name} is dead")


async def until(condition: Callable[[], bool]) -> None:
    """What another process or socket does cannot be awaited."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settled(times: int = 20) -> None:
    """Let everything that can go on go on."""
    for _ in range(times):
        await asyncio.sleep(0)
