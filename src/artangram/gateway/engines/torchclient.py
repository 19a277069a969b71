"""An embedded engine as its owner sees it: the engine's verbs as commands over a link.

Where the worker runs is another matter; `TorchEngine` and `TorchEngineProcess` know. Without torch.
"""

import asyncio
import itertools
import math
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
    EngineCommand,
    EngineReady,
    Handed,
    Load,
    News,
    OpenEngine,
    Pause,
    Read,
    Resume,
    Sampled,
    StatsReply,
    StreamEnded,
    TorchEngineSettings,
    WorkerFailed,
    client_terms,
)
from artangram.link import (
    Link,
    LinkEnded,
    LinkFull,
    LinkRefused,
    LinkUser,
    PeerFailed,
    dial,
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


class TorchClient(LinkUser[list[News]]):
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
        self._link: Link[list[News]] | None = None
        self._stats = Stats(
            version=version,
            running=0,
            waiting=0,
            is_paused=False,
            prompt_tokens=0,
            sampled_tokens=0,
        )

    def __repr__(self) -> str:
        state = self._gone or f"version {self._stats.version}, {self._stats.running} running"
        return f"<{type(self).__name__} {self.name}: {state}>"

    async def _open(
        self, sock: socket.socket, settings: TorchEngineSettings, *, silence_s: float | None = None
    ) -> None:
        """Have the worker at the other end of `sock` load the model."""
        try:
            # However long it takes until the worker has imported torch.
            terms = client_terms(silence_s)
            self._link = await dial(sock, terms, self, patience_s=math.inf)
            ready = await self._link.ask(OpenEngine(settings), EngineReady)
        except (LinkEnded, LinkRefused, BadInput, PeerFailed) as error:
            is_end = isinstance(error, LinkEnded)
            self.crash("it ended before it was ready" if is_end else str(error))
            raise EngineGone(f"{self.name}: {self._gone}") from None
        self.max_context, self._vocab_size = ready.max_context, ready.vocab_size
        self.cache_kind = ready.cache_kind

    def _tell(self, command: EngineCommand, number: int) -> None:
        """Tell the worker about one request; does nothing once the worker is gone."""
        assert self._link is not None
        try:
            self._link.tell(command, stream=str(number))
        except LinkFull as error:
            self.crash(str(error))

    async def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        def command(number: int) -> EngineCommand:
            return Add(number, request, cache)

        async with aclosing(self._heard(request, command)) as items:
            async for item in items:
                assert not isinstance(item, Cache)
                yield item

    @asynccontextmanager
    async def handing(self, request: EngineRequest) -> AsyncIterator[Cache | None]:
        path = self._caches() / str(next(self._numbers))

        def command(number: int) -> EngineCommand:
            return Read(number, request, str(path))

        try:
            async with aclosing(self._heard(request, command)) as items:
                item = await anext(items)
            yield item if isinstance(item, Cache) else None
        finally:
            path.unlink(missing_ok=True)

    async def _heard(
        self, request: EngineRequest, command: Callable[[int], EngineCommand]
    ) -> AsyncGenerator[TokenChunk | Finish | Cache, None]:
        """What comes of a command about this request, to its end."""
        self._raise_if_gone()
        refuse_unfit(
            request,
            max_context=self.max_context,
            vocab_size=self._vocab_size,
            lacks=("json_schema",),
        )
        if request.id in self._streams:
            raise BadInput(
                "id", f"{request.id} is already running", "give every request its own id"
            )
        number = self._streams[request.id] = next(self._numbers)
        inbox = self._inboxes[number] = _Inbox()
        try:
            self._tell(command(number), number)
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
                self._tell(Abort(number), number)

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
            self._tell(Abort(number), number)

    async def pause(self) -> None:
        await self._ask(Pause())

    async def resume(self) -> None:
        await self._ask(Resume())

    async def load(self, version: int, path: Path) -> None:
        try:
            await self._ask(Load(version, str(path)))
        except BadInput as error:
            raise BadWeights(f"{self.name}: {error}") from None

    def stats(self) -> Stats:
        return self._stats

    def crash(self, reason: str) -> None:
        """The engine is gone: every stream and every ask fails with `reason`."""
        if self._gone:
            return
        self._gone = reason
        gone = EngineGone(f"{self.name}: {reason}")
        for inbox in self._inboxes.values():
            inbox.put(gone)
        self._inboxes.clear()
        if self._link is not None:
            self._link.abort(LinkEnded(reason))

    async def _ask(self, command: Pause | Resume | Load) -> None:
        self._raise_if_gone()
        assert self._link is not None
        try:
            await self._link.ask(command)
        except LinkEnded as error:
            raise EngineGone(f"{self.name}: {self._gone or error}") from None

    # What the link calls.

    def on_tell(self, record: list[News]) -> None:
        for news in record:
            self._hear(news)

    def on_end(self, error: LinkEnded) -> None:
        self.crash("its worker ended")

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
            case WorkerFailed(reason):
                self.crash(reason)

    def _on_handed(self, stream: int, cache: Cache) -> None:
        if stream in self._inboxes:
            self._inboxes.pop(stream).put(cache)
        else:  # The caller has gone meanwhile.
            Path(cache.handle).unlink(missing_ok=True)

    def _put(self, stream: int, item: TokenChunk | Finish) -> None:
        """A closed stream has no listener any more."""
        if (inbox := self._inboxes.get(stream)) is not None:
            inbox.put(item)

    def _raise_if_gone(self) -> None:
        if self._gone:
            raise EngineGone(f"{self.name}: {self._gone}")
