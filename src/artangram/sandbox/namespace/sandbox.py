"""One sandbox of this machine as its caller holds it: requests over a socket to the init inside.

- One main command at a time: see `execution` for its way from order to result.
- Commands beside it, as many as `process.MOST_PARALLEL`: see `process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol

from artangram.aio import Background
from artangram.core.errors import BadInput
from artangram.sandbox.errors import CreateFailed, SandboxError
from artangram.sandbox.inside import channel, init, request
from artangram.sandbox.inside.request import InitRequest
from artangram.sandbox.namespace import execution
from artangram.sandbox.namespace.disk import disk_for
from artangram.sandbox.namespace.exchange import Feed, read_all
from artangram.sandbox.namespace.execution import GRACE_S, Ending, Execution, OnEnd
from artangram.sandbox.namespace.freezer import Freezer
from artangram.sandbox.namespace.initline import InitLine
from artangram.sandbox.namespace.process import LocalProcess
from artangram.sandbox.namespace.results import InitReply, absolute
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.process import MOST_PARALLEL, OnOutput
from artangram.sandbox.protocol import MAX_READ_BYTES, Command, CommandResult, Output, Snapshot
from artangram.sandbox.snapshot import HELD, SnapshotTerms

CLOSE_PATIENCE_S = 1.0


class SandboxHost(execution.ExecutionHost, Protocol):
    """What a sandbox needs of the provider that made it."""

    def kill(self, sandbox: LocalSandbox) -> None:
        """End it from outside, whatever it does."""
        ...

    async def remember(self, traits: Traits, changes: int, terms: SnapshotTerms) -> Snapshot:
        """Keep a copy of the changed files, open as `changes`, for siblings."""
        ...


class LocalSandbox:
    """See `protocol.Sandbox`."""

    def __init__(self, provider: SandboxHost, traits: Traits, sock: socket.socket) -> None:
        self.traits = traits
        self.pid = 0
        self.ended = asyncio.Event()
        self.num_ooms = 0
        self.groups: set[int] = set()
        self.joined = -1
        self.has_kept = False
        self.measures = False
        self._provider = provider
        self._loop = asyncio.get_running_loop()
        self._line = InitLine(traits.name, sock, on_gone=self.lose)
        self._parallel: set[LocalProcess] = set()
        self._background = Background(self._on_error)
        self._turn = asyncio.Lock()
        self._current: Execution | None = None
        self._ending: asyncio.Future[InitReply] | None = None
        self._freed: asyncio.Future[None] | None = None
        self._num_busy = 0
        self._freezer = Freezer(self, self._line.tell)
        self._rests_frozen = False
        self._refreeze: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self._line.gone or ("frozen" if self._freezer.is_frozen else "alive")
        return f"<LocalSandbox {self.name}: {state}>"

    @property
    def name(self) -> str:
        return self.traits.name

    @property
    def is_alive(self) -> bool:
        return not self._line.gone

    async def wait_ready(self) -> None:
        reply = await self._line.ready
        if reply.kind != init.READY:
            told = reply.text.decode(errors="replace")
            raise CreateFailed(told or "the sandbox ended while it was made")
        self.measures = bool(reply.flags & init.MEASURES)

    async def run(self, command: Command) -> CommandResult:
        return await self._run(command)

    async def stream(self, command: Command) -> AsyncIterator[Output | CommandResult]:
        feed = Feed()
        running = asyncio.ensure_future(self._run(command, feed))
        running.add_done_callback(lambda _: feed.finish())
        try:
            while (piece := await feed.next()) is not None:
                yield piece
            yield await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    def begin(self, command: Command, on_end: OnEnd) -> bool:
        is_free = self._current is None and not self._turn.locked()
        is_asleep = (
            self._line.gone or self._freezer.is_frozen or self._rests_frozen or self.has_kept
        )
        if not is_free or is_asleep or command.keep or command.disk_mb:
            return False
        self._start(command, asked_at=monotonic(), on_end=on_end)
        return True

    def end_command(self) -> None:
        if self._current is not None and self.is_alive:
            self._ask_to_end()

    async def _run(self, command: Command, feed: Feed | None = None) -> CommandResult:
        self._line.check()
        asked_at = monotonic()
        async with self._turn:
            await self._until_free()
            self._line.check()
            self._num_busy += 1
            try:
                async with disk_for(command, self.traits, changes=self._changes):
                    over: asyncio.Future[CommandResult] = self._loop.create_future()
                    ended = partial(_settle, over)
                    start = partial(
                        self._start, command, asked_at=asked_at, on_end=ended, feed=feed
                    )
                    return await self._answered(start, over)
            finally:
                await self._rest()

    async def _changes(self) -> InitReply:
        return await self._ask("/", InitRequest(self._line.number(), request.CHANGES))

    async def _until_free(self) -> None:
        """Only the caller that has the turn comes here; a command that began may still run."""
        if self._current is not None:
            self._freed = self._loop.create_future()
            await self._freed

    def _start(
        self, command: Command, *, asked_at: float, on_end: OnEnd, feed: Feed | None = None
    ) -> None:
        self._line.check()
        over = partial(self._on_over, on_end)
        current = Execution(self, command, number=self._line.number(), on_end=over, feed=feed)
        self._current = current
        self._line.listeners[current.number] = current.on_reply
        self._num_busy += 1
        try:
            current.begin(self._provider, asked_at=asked_at)
        except BaseException:
            self._leave()
            raise

    def _on_over(self, on_end: OnEnd, ending: Ending) -> None:
        if isinstance(ending, CommandResult) and not ending.start_error:
            self._rests_frozen = self.has_kept = ending.leftovers_kept > 0
        self._leave()
        on_end(ending)

    def _leave(self) -> None:
        if self._current is not None:
            self._line.listeners.pop(self._current.number, None)
        self._current = self._ending = None
        self._num_busy -= 1
        if self._rests_frozen and not self._num_busy:
            self._refreeze = self._loop.create_task(self._freeze_if_idle())
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    async def _answered(
        self, start: Callable[[], None], over: asyncio.Future[CommandResult]
    ) -> CommandResult:
        """Start, wait for the end; if we are cancelled, end the command first."""
        try:
            if self._freezer.is_frozen or self.has_kept:
                await self._freezer.frozen_until(start)
            else:
                start()
            return await over
        except asyncio.CancelledError:
            if self.is_alive:
                await self._end_running()
            raise

    async def _end_running(self) -> None:
        """Return when no command runs any more, even if we are cancelled again meanwhile."""
        over = self._ask_to_end()
        while not over.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({over})

    def _ask_to_end(self) -> asyncio.Future[InitReply]:
        """Done when no command runs any more; a sandbox that does not obey is killed."""
        if self._ending is not None and not self._ending.done():
            return self._ending  # init would answer only the last of several requests
        self._ending = self._line.tell(request.END)
        if self._freezer.is_frozen:  # Init could not answer, and would be killed for it.
            self._waking = self._loop.create_task(self._freezer.set(False))
        watch = self._loop.call_later(GRACE_S, self.kill)
        self._ending.add_done_callback(partial(_ended_or_gone, watch))
        return self._ending

    def kill(self) -> None:
        self._provider.kill(self)

    @property
    def parallel_pids(self) -> frozenset[int]:
        return frozenset(process.pid for process in self._parallel)

    async def start(self, command: Command, on_output: OnOutput) -> LocalProcess:
        self._line.check()
        asked_at = monotonic()
        if len(self._parallel) >= MOST_PARALLEL:
            problem = f"{MOST_PARALLEL} processes were started here and have not ended"
            raise BadInput("parallel", problem, "end one of them first")
        process = LocalProcess(
            self,
            command,
            number=self._line.number(),
            on_output=on_output,
            on_over=self._on_process_over,
        )
        await self._wake()
        try:
            process.begin(self._provider, asked_at=asked_at)
            self._parallel.add(process)
            self._line.listeners[process.number] = process.on_reply
            await process.started
        except BaseException:
            if process in self._parallel:
                process.end()
            else:
                await self._rest()
            raise
        return process

    def _on_process_over(self, process: LocalProcess) -> None:
        self._parallel.discard(process)
        self._line.listeners.pop(process.number, None)
        self._background.start(self._rest())

    async def told(self, verb: int, *, path: bytes, mode: int) -> None:
        (await self._ask("", InitRequest(self._line.number(), verb, path=path, mode=mode))).close()

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        reply = await self._ask(
            path, InitRequest(self._line.number(), request.READ, path=self._find(path))
        )
        try:
            size = os.fstat(reply.descriptor).st_size
            if size > max_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            return await read_all(reply.descriptor, max_bytes, size=size)
        finally:
            reply.close()

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        source = channel.memory_file(data)
        try:
            asked = InitRequest(
                self._line.number(), request.WRITE, path=self._find(path), mode=mode
            )
            (await self._ask(path, asked, source)).close()
        finally:
            os.close(source)

    def _find(self, path: str) -> bytes:
        return os.fsencode(absolute(path, work_dir=self.traits.work_dir))

    async def _ask(self, path: str, asked: InitRequest, *fds: int) -> InitReply:
        """A request that PID 1 answers at once; a frozen sandbox is woken for it."""
        self._line.check()
        try:
            await self._wake()
            reply = await self._line.ask(asked, fds)
        finally:
            await self._rest()
        if reply.kind == init.REFUSED:
            raise OSError(reply.status, os.strerror(reply.status), path)
        return reply

    async def _wake(self) -> None:
        """PID 1 can answer until `_rest`."""
        self._num_busy += 1
        if self._freezer.is_frozen:
            await self._freezer.set(False)

    async def _rest(self) -> None:
        """The last caller that leaves freezes what was to be frozen."""
        self._num_busy -= 1
        await self._freeze_if_idle()

    async def _freeze_if_idle(self) -> None:
        if self._rests_frozen and not self._num_busy and self.is_alive:
            await self._freezer.set(True)

    async def resize(self, cores: tuple[int, ...]) -> None:
        self._line.check()
        if not cores:
            raise ValueError("a running command needs at least one core")
        if self._current is not None:
            self._current.resize(cores)

    async def freeze(self) -> None:
        """Stop everything inside; the clock of a running command goes on."""
        self._line.check()
        self._rests_frozen = True
        if not self._freezer.is_frozen:
            await self._freezer.set(True)

    async def thaw(self) -> None:
        self._line.check()
        self._rests_frozen = False
        if self._freezer.is_frozen:
            await self._freezer.set(False)

    async def snapshot(self, terms: SnapshotTerms = HELD) -> Snapshot:
        """Copy what was changed, while nothing inside can change it."""
        async with self._turn:
            await self._until_free()
            reply = await self._changes()
            rested_frozen = self._rests_frozen
            try:
                await self.freeze()
                return await self._provider.remember(self.traits, reply.descriptor, terms)
            finally:
                reply.close()
                if self.is_alive and not rested_frozen:
                    await self.thaw()

    async def close(self) -> None:
        """Return when every process and control group of the sandbox is gone."""
        if not self._line.gone:
            if self._freezer.is_frozen:
                with contextlib.suppress(SandboxError):  # It may be gone already.
                    await self._freezer.set(False)
            self.lose("it was closed")
        try:
            await asyncio.wait_for(self.ended.wait(), CLOSE_PATIENCE_S)
        except TimeoutError:
            self._provider.kill(self)
            await asyncio.wait_for(self.ended.wait(), 10 * CLOSE_PATIENCE_S)

    def lose(self, reason: str) -> None:
        """The sandbox is gone: close our end and fail every waiting request."""
        if self._line.gone:
            return
        self._line.close(reason)
        if self._current is not None:
            self._current.on_lost(reason)
        for process in list(self._parallel):
            process.on_lost(reason)

    def reap(self, reason: str) -> None:
        """Nothing of it is left: callers that wait for its end can go on."""
        self.lose(reason)
        if self.traits.groups is not None:
            self.traits.groups.shared.close()
        self.ended.set()

    def send(self, data: bytes, fds: Sequence[int]) -> None:
        self._line.send(data, fds)

    def run_later(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.start(work)

    def _on_error(self, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"{self!r} failed", "exception": error})


def _settle(over: asyncio.Future[CommandResult], ending: Ending) -> None:
    if over.done():
        return  # its caller was cancelled
    if isinstance(ending, CommandResult):
        over.set_result(ending)
    else:
        over.set_exception(ending)
        over.exception()  # looked at: a cancelled caller does not look


def _ended_or_gone(watch: asyncio.TimerHandle, over: asyncio.Future[InitReply]) -> None:
    watch.cancel()
    over.exception()  # looked at: a sandbox that died is over, too
