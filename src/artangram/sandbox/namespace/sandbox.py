"""One sandbox of this machine as its caller holds it: requests over a socket to the init inside.

- Every request gets exactly one answer; when init is gone, all waiting requests are told so.
- Init holds the deadline. If it does not answer within `GRACE_S` of it, the whole sandbox is
  killed from outside and the command counts as timed out.
- A sandbox that the kernel kills for memory ended its command out of memory: that is the
  program's doing, not the infrastructure's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from artangram.sandbox.errors import CreateFailed, SandboxError, SandboxGone
from artangram.sandbox.inside import channel, init, request
from artangram.sandbox.inside.request import Request
from artangram.sandbox.namespace.cores import Cores, Hold, Meter
from artangram.sandbox.namespace.exchange import Feed, Outlet, read_all, resume
from artangram.sandbox.namespace.results import Reply, absolute, order_of, result_of
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.protocol import (
    MAX_READ_BYTES,
    Command,
    CommandResult,
    Output,
    Snapshot,
)

GRACE_S = 1.0
CLOSE_PATIENCE_S = 1.0
READ_IN_LINE_BYTES = 1 << 20
READ_AFTER_S = 0.002
"""A command that ends sooner is read once, at its end: watching its pipes costs a tenth of it."""


class Home(Protocol):
    """What a sandbox needs of the provider that made it."""

    null: int
    cores: Cores

    def rlimits(self, *, processes: int, memory_mb: int) -> dict[int, int]:
        """What limits each process where no control group limits all of them."""
        ...

    def kill(self, sandbox: LocalSandbox) -> None:
        """End it from outside, whatever it does."""
        ...

    async def remember(self, traits: Traits, changes: int) -> Snapshot:
        """Keep a copy of the changed files, open as `changes`, for siblings."""
        ...


class LocalSandbox:
    """See `protocol.Sandbox`."""

    def __init__(self, provider: Home, traits: Traits, sock: socket.socket) -> None:
        self.traits = traits
        self.pid = 0
        self.ended = asyncio.Event()
        self.num_ooms = 0
        self._provider = provider
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._ready: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[0] = self._ready
        self._last_number = 0
        self._turn = asyncio.Lock()
        self._hold: Hold | None = None
        self._meter = Meter(0, asked_at=0.0, now=0.0)
        self._joined = -1
        self._num_busy = 0
        self._is_frozen = False
        self._rests_frozen = False
        self._gone = ""
        self._overdue = False
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def __repr__(self) -> str:
        state = self._gone or ("frozen" if self._is_frozen else "alive")
        return f"<LocalSandbox {self.name}: {state}>"

    @property
    def name(self) -> str:
        return self.traits.name

    @property
    def is_alive(self) -> bool:
        return not self._gone

    async def wait_ready(self) -> None:
        reply = await self._ready
        if reply.kind != init.READY:
            raise CreateFailed(reply.text or "the sandbox ended while it was made")

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

    async def _run(self, command: Command, feed: Feed | None = None) -> CommandResult:
        self._check_alive()
        asked_at = self._loop.time()
        async with self._turn:
            self._check_alive()
            stdout = Outlet(self._loop, cap=command.output_bytes)
            stderr = Outlet(self._loop, cap=command.output_bytes)
            try:
                await self._wake()
                if feed is not None:
                    feed.attach(stdout, stderr)
                return await self._run_now(command, stdout, stderr, asked_at=asked_at)
            finally:
                stdout.close()
                stderr.close()
                await self._rest()

    async def _run_now(
        self, command: Command, stdout: Outlet, stderr: Outlet, *, asked_at: float
    ) -> CommandResult:
        groups = self.traits.groups
        if groups is not None:
            groups.begin(memory_mb=command.memory_mb, processes=command.processes)
            groups.share(self.pid, command.share)
        self._hold = self._provider.cores.lend(groups, self.pid, cores=command.cores)
        self._meter = Meter(len(command.cores), asked_at=asked_at, now=self._loop.time())
        try:
            reply = await self._exchange(command, stdout, stderr)
        finally:
            self._hold.release()
            self._hold = None
        self._meter.stop(self._loop.time())
        stdout.drain()
        stderr.drain()
        self._rests_frozen = reply.kept > 0
        memory = groups.end() if groups is not None and self.is_alive else None
        return result_of(reply, stdout, stderr, memory=memory, meter=self._meter)

    async def _exchange(self, command: Command, stdout: Outlet, stderr: Outlet) -> Reply:
        """Send the command, watch the clock, and turn the sandbox's own death into an answer."""
        assert self._hold is not None
        stdin = channel.memory_file(command.stdin) if command.stdin else self._provider.null
        fds = [stdin, stdout.write_end, stderr.write_end]
        if self._hold.group >= 0 and self._hold.group != self._joined:
            self._joined = self._hold.group
            fds.append(self._joined)
        try:
            answer = self._send(self._order(command), fds)
        finally:
            if command.stdin:
                os.close(stdin)
        # From here on the command is under way, and what we do costs nobody time.
        stdout.release()
        stderr.release()
        if self.traits.groups is not None:
            self.traits.groups.forget_peak()
        timers = (
            self._loop.call_later(READ_AFTER_S, resume, stdout, stderr),
            self._loop.call_later(command.timeout_s + GRACE_S, self._on_overdue),
        )
        try:
            return await self._answered(answer)
        except SandboxGone:
            return await self._post_mortem()
        finally:
            for timer in timers:
                timer.cancel()

    def _order(self, command: Command) -> Request:
        limits = self.traits.limits
        rlimits = self._provider.rlimits(
            processes=command.processes or limits.processes,
            memory_mb=command.memory_mb or limits.memory_mb,
        )
        return order_of(self._number(), command, home=self.traits.home, rlimits=rlimits)

    async def _answered(self, answer: asyncio.Future[Reply]) -> Reply:
        """Wait for the answer; if we are cancelled, end the command first."""
        try:
            return await answer
        except asyncio.CancelledError:
            if self.is_alive:
                await self._end_running()
            raise

    async def _end_running(self) -> None:
        """Return when no command runs any more, even if we are cancelled again meanwhile."""
        over = self._send(Request(self._number(), request.END))
        watch = self._loop.call_later(GRACE_S, self._provider.kill, self)
        while not over.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({over})
        watch.cancel()
        over.exception()  # looked at: a sandbox that died is over, too

    async def _post_mortem(self) -> Reply:
        """Why the sandbox died under its command; `ended` tells what the kernel counted."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.ended.wait(), GRACE_S)
        if self._overdue:
            return Reply.killed(flags=init.TIMED_OUT)
        groups = self.traits.groups
        if groups is not None and self.num_ooms > groups.num_ooms:
            return Reply.killed(out_of_memory=True)
        raise SandboxGone(f"{self.name}: {self._gone}")

    def _on_overdue(self) -> None:
        self._overdue = True
        self._provider.kill(self)

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        reply = await self._ask(path, Request(self._number(), request.READ, path=self._find(path)))
        try:
            about = os.fstat(reply.fds[0])
            assert stat.S_ISREG(about.st_mode), "PID 1 hands out regular files only"
            if about.st_size > max_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            if about.st_size > READ_IN_LINE_BYTES:
                return await asyncio.to_thread(read_all, reply.fds[0], max_bytes)
            return read_all(reply.fds[0], max_bytes)
        finally:
            reply.close()

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        source = channel.memory_file(data)
        try:
            asked = Request(self._number(), request.WRITE, path=self._find(path), mode=mode)
            (await self._ask(path, asked, source)).close()
        finally:
            os.close(source)

    def _find(self, path: str) -> bytes:
        return absolute(path, home=self.traits.home)

    async def _ask(self, path: str, asked: Request, *fds: int) -> Reply:
        """A request that PID 1 answers at once; a frozen sandbox is woken for it."""
        self._check_alive()
        try:
            await self._wake()
            reply = await self._send(asked, fds)
        finally:
            await self._rest()
        if reply.kind == init.REFUSED:
            raise OSError(reply.status, os.strerror(reply.status), path)
        return reply

    async def _wake(self) -> None:
        """PID 1 can answer until `_rest`."""
        self._num_busy += 1
        if self._is_frozen:
            await self._set_frozen(False)

    async def _rest(self) -> None:
        """Who leaves last freezes what was to be frozen."""
        self._num_busy -= 1
        if self._rests_frozen and not self._num_busy and self.is_alive:
            await self._set_frozen(True)

    async def resize(self, cores: tuple[int, ...]) -> None:
        self._check_alive()
        if not cores:
            raise ValueError("a running command needs at least one core")
        if self._hold is not None:
            self._hold.resize(cores)
            self._meter.resize(len(cores), now=self._loop.time())

    async def freeze(self) -> None:
        """Stop everything inside; the clock of a running command goes on."""
        self._check_alive()
        self._rests_frozen = True
        if not self._is_frozen:
            await self._set_frozen(True)

    async def thaw(self) -> None:
        self._check_alive()
        self._rests_frozen = False
        if self._is_frozen:
            await self._set_frozen(False)

    async def _set_frozen(self, frozen: bool) -> None:
        """Known as frozen before it is, so that whoever needs it awake thaws it in any case."""
        groups = self.traits.groups
        self._is_frozen = frozen
        if groups is None:
            verb = request.STOP if frozen else request.CONTINUE
            await self._send(Request(self._number(), verb))
        elif frozen:
            await asyncio.to_thread(groups.freeze, self.pid)
        else:
            groups.thaw()

    async def snapshot(self) -> Snapshot:
        """Copy what was changed, while nothing inside can change it."""
        async with self._turn:
            reply = await self._ask("/", Request(self._number(), request.CHANGES))
            rested_frozen = self._rests_frozen
            try:
                await self.freeze()
                return await self._provider.remember(self.traits, reply.fds[0])
            finally:
                reply.close()
                if self.is_alive and not rested_frozen:
                    await self.thaw()

    async def close(self) -> None:
        """Return when every process and control group of the sandbox is gone."""
        if not self._gone:
            if self._is_frozen:
                await self._set_frozen(False)
            self.lose("it was closed")
        try:
            await asyncio.wait_for(self.ended.wait(), CLOSE_PATIENCE_S)
        except TimeoutError:
            self._provider.kill(self)
            await asyncio.wait_for(self.ended.wait(), 10 * CLOSE_PATIENCE_S)

    def lose(self, reason: str) -> None:
        """The sandbox is no more: close our end and tell everyone who waits."""
        if self._gone:
            return
        self._gone = reason
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(SandboxGone(f"{self.name}: {reason}"))

    def bury(self, reason: str) -> None:
        """Nothing of it is left: whoever waits for its end can go on."""
        self.lose(reason)
        if self.traits.groups is not None:
            self.traits.groups.end_share()
        self.ended.set()

    def _check_alive(self) -> None:
        if self._gone:
            raise SandboxGone(f"{self.name}: {self._gone}")

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _send(self, asked: Request, fds: Sequence[int] = ()) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[asked.number] = future
        try:
            channel.send_message(self._sock, asked.encode(), fds)
        except BlockingIOError as error:
            self._waiting.pop(asked.number, None)
            raise SandboxError(f"{self.name} does not take requests") from error
        except OSError:
            self.lose("its first process is gone")
        return future

    def _on_readable(self) -> None:
        try:
            data, fds = channel.receive_bytes(self._sock)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self.lose("its first process is gone")
            return
        reply = Reply.parse(data, fds)
        future = self._waiting.pop(reply.request, None)
        if future is None or future.done():
            reply.close()
        else:
            future.set_result(reply)
