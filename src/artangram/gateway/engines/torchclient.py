"""An embedded engine as its owner sees it: the engine's verbs as orders, and news as answers.

Where the worker runs is another matter; `TorchEngine` and `TorchEngineProcess` know. Without torch.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import (
    BadWeights,
    Cache,
    EngineGone,
    EngineRequest,
    Finish,
    Stats,
    TokenChunk,
    refuse_unfit,
)
from artangram.gateway.engines.torchwire import (
    Abort,
    Add,
    CommandDone,
    CommandRefused,
    EngineReady,
    Handed,
    Load,
    News,
    Order,
    Pause,
    PingEngine,
    Read,
    Resume,
    Sampled,
    StatsReply,
    StreamEnded,
    WorkerFailed,
)
from artangram.scratchdir import ScratchDir

_Item = TokenChunk | Finish | Cache | EngineGone


class _Inbox:
    """What came for one stream and was not taken yet: at most its whole answer."""

    __slots__ = ("_arrived", "_items")

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._items: list[_Item] = []

    def put(self, item: _Item) -> None:
        self._items.append(item)
        self._arrived.set()

    async def take(self) -> list[_Item]:
        await self._arrived.wait()
        self._arrived.clear()
        items, self._items = self._items, []
        return items


class TorchClient:
    """See `protocol.Engine` and `protocol.Handover`, without its beginning and its end.

    What was read for others lies in shared memory, in a directory that ends with the engine.
    """

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.max_context = 0
        self.cache_kind = ""
        self._vocab_size = 0
        self._home: ScratchDir | None = None
        self._gone = ""
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, _Inbox] = {}
        self._streams: dict[str, int] = {}
        self._asked: dict[int, asyncio.Future[None]] = {}
        self._stats = Stats(
            version=version,
            running=0,
            waiting=0,
            is_paused=False,
            prompt_tokens=0,
            sampled_tokens=0,
        )
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        state = self._gone or f"version {self._stats.version}, {self._stats.running} running"
        return f"<{type(self).__name__} {self.name}: {state}>"

    def _send(self, order: Order) -> None:
        """Hand an order to the worker; in vain if it is gone."""
        raise NotImplementedError

    async def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        def order(number: int) -> Order:
            return Add(number, request, cache)

        async with aclosing(self._heard(request, order)) as items:
            async for item in items:
                assert not isinstance(item, Cache)
                yield item

    @asynccontextmanager
    async def handing(self, request: EngineRequest) -> AsyncIterator[Cache | None]:
        path = self._caches() / str(next(self._numbers))

        def order(number: int) -> Order:
            return Read(number, request, str(path))

        try:
            async with aclosing(self._heard(request, order)) as items:
                item = await anext(items)
            yield item if isinstance(item, Cache) else None
        finally:
            path.unlink(missing_ok=True)

    async def _heard(
        self, request: EngineRequest, order: Callable[[int], Order]
    ) -> AsyncGenerator[TokenChunk | Finish | Cache, None]:
        """What comes of an order about this request, to its end."""
        self._raise_if_gone()
        refuse_unfit(request, max_context=self.max_context, vocab_size=self._vocab_size)
        if request.id in self._streams:
            raise BadInput("id", f"{request.id} is under way", "give every request its own")
        number = self._streams[request.id] = next(self._numbers)
        inbox = self._inboxes[number] = _Inbox()
        try:
            self._send(order(number))
            while True:
                for item in await inbox.take():
                    if isinstance(item, EngineGone):
                        raise item
                    yield item
                    if not isinstance(item, TokenChunk):
                        return
        finally:
            del self._streams[request.id]
            if self._inboxes.pop(number, None) is not None:
                self._send(Abort(number))

    def _caches(self) -> Path:
        """Where what was read for others is left."""
        if self._home is None:
            self._home = ScratchDir.opened()
        return self._home.directory

    def _leave_home(self) -> None:
        if self._home is not None:
            self._home.close()
            self._home = None

    async def abort(self, request_id: str) -> None:
        self._raise_if_gone()
        if (number := self._streams.get(request_id)) is not None:
            self._send(Abort(number))

    async def pause(self) -> None:
        await self._ask(Pause(next(self._numbers)))

    async def resume(self) -> None:
        await self._ask(Resume(next(self._numbers)))

    async def load(self, version: int, path: Path) -> None:
        await self._ask(Load(next(self._numbers), version, str(path)))

    async def ping(self) -> None:
        """Return if the worker hears orders."""
        await self._ask(PingEngine(next(self._numbers)))

    def stats(self) -> Stats:
        return self._stats

    def crash(self, reason: str) -> None:
        """It is gone, and everybody who waits hears it."""
        if self._gone:
            return
        self._gone = reason
        gone = EngineGone(f"{self.name}: {reason}")
        for inbox in self._inboxes.values():
            inbox.put(gone)
        self._inboxes.clear()
        for number in self._asked:
            self._settle(number, gone)
        if not self._is_ready.done():
            self._is_ready.set_exception(gone)

    async def _ask(self, order: Pause | Resume | Load | PingEngine) -> None:
        self._raise_if_gone()
        answer = self._asked[order.number] = asyncio.get_running_loop().create_future()
        self._send(order)
        try:
            await answer
        finally:
            del self._asked[order.number]

    def _on_news(self, every: Sequence[News]) -> None:
        for news in every:
            self._hear(news)

    def _hear(self, news: News) -> None:
        match news:
            case Sampled(stream, chunk):
                self._put(stream, chunk)
            case StreamEnded(stream, reason):
                self._put(stream, Finish(reason))
                self._inboxes.pop(stream, None)
            case Handed(stream, cache):
                self._on_handed(stream, cache)
            case StatsReply(stats):
                self._stats = stats
            case CommandDone(number):
                self._settle(number, None)
            case CommandRefused(number, problem):
                self._settle(number, BadWeights(f"{self.name}: {problem}"))
            case EngineReady(max_context, vocab_size, cache_kind):
                self.max_context, self._vocab_size = max_context, vocab_size
                self.cache_kind = cache_kind
                self._is_ready.set_result(None)
            case WorkerFailed(reason):
                self.crash(reason)

    def _on_handed(self, stream: int, cache: Cache) -> None:
        if stream in self._inboxes:
            self._inboxes.pop(stream).put(cache)
        else:  # Whoever asked for it has gone meanwhile.
            Path(cache.handle).unlink(missing_ok=True)

    def _put(self, stream: int, item: TokenChunk | Finish) -> None:
        """Nobody listens any more to a stream that was closed."""
        if (inbox := self._inboxes.get(stream)) is not None:
            inbox.put(item)

    def _settle(self, number: int, error: Exception | None) -> None:
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    def _raise_if_gone(self) -> None:
        if self._gone:
            raise EngineGone(f"{self.name}: {self._gone}")
