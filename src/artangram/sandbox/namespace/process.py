"""A command that runs beside others in a sandbox of this machine: its pipes or terminal, its cores.

Init starts it, holds its deadline and ends its tree; see `sandbox.process` for the contract and
`execution` for the main command. What it prints is read here as fast as its reader takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import sys
import termios
from collections.abc import Callable
from time import monotonic
from typing import Any, Literal

from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.inside import init, request
from artangram.sandbox.namespace.cores import Hold
from artangram.sandbox.namespace.exchange import OutputPipe, resume
from artangram.sandbox.namespace.execution import GRACE_S, ExecutionHost, ParallelBox, learned
from artangram.sandbox.namespace.results import (
    InitReply,
    Memory,
    Printed,
    order_of,
    result_of,
)
from artangram.sandbox.process import WINDOW_BYTES, OnOutput, ProcessInput, TerminalSize
from artangram.sandbox.protocol import Command, CommandResult, CoreMeter, Output

NOTHING_PRINTED = Printed(b"", b"", 0)
END_OF_FILE = b"\x04"
"""What a terminal takes for the end of its input."""


class LocalProcess:
    """See `sandbox.process.SandboxProcess`. `on_over` is told once, when nothing of it is left."""

    def __init__(
        self,
        box: ParallelBox,
        command: Command,
        *,
        number: int,
        on_output: OnOutput,
        on_over: Callable[[LocalProcess], None],
    ) -> None:
        self.pid = 0
        self.number = number
        self._box = box
        self._command = command
        self._on_output = on_output
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._outlets: tuple[OutputPipe, ...] = ()
        self._stdin = -1
        self._stdin_at = 0
        self._feeding = asyncio.Lock()
        self._num_printed = self._num_taken = 0
        self._is_ended_by_us = self._is_overdue = False
        self.started: asyncio.Future[None] = self._loop.create_future()
        """Done when the program runs, or has ended without running."""
        self._over: asyncio.Future[CommandResult] = self._loop.create_future()

    def begin(self, host: ExecutionHost, *, asked_at: float) -> None:
        """Lend cores, send. What it raises has left nothing behind."""
        command, groups = self._command, self._box.traits.groups
        now, limits = monotonic(), self._box.traits.limits
        self._room = host.room
        host.room.check_kept()
        rlimits: dict[int, int] = {}
        if groups is None:
            rlimits = host.rlimits(
                processes=limits.processes, memory_mb=limits.memory_mb, disk_mb=0
            )
        self._hold: Hold = host.cores.lend(groups, self._box.pid, cores=command.cores)
        self._meter = CoreMeter(len(command.cores), asked_at=asked_at, now=now)
        self._watch = host.watch
        try:
            self._send(rlimits)
        except BaseException:
            self._close()
            self._hold.release()
            raise
        host.watch.add(self, now + command.timeout_s + GRACE_S)

    def _send(self, rlimits: dict[int, int]) -> None:
        box, terminal, theirs = self._box, self._command.terminal, list[int]()
        flags, group = request.PARALLEL, learned(box, self._hold)
        if group >= 0:
            flags |= request.MOVES
        if terminal is not None:
            flags |= request.TERMINAL
            rlimits = {request.WINDOW: terminal.rows << 16 | terminal.columns, **rlimits}
        try:
            if terminal is None:
                theirs = self._open_pipes()
            order = order_of(
                self.number,
                self._command,
                traits=box.traits,
                rlimits=rlimits,
                flags=flags,
                group=group,
            )
            box.send(order, theirs)
        finally:
            for fd in theirs:
                os.close(fd)

    def _open_pipes(self) -> list[int]:
        """What the program reads and writes; our ends do not block."""
        theirs, self._stdin = os.pipe2(os.O_CLOEXEC)
        ends = [theirs]
        os.set_blocking(self._stdin, False)
        for name in ("stdout", "stderr"):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            ends.append(theirs)
            self._add_outlet(ours, "stdout" if name == "stdout" else "stderr")
        return ends

    def _add_outlet(self, fd: int, channel: Literal["stdout", "stderr"]) -> None:
        os.set_blocking(fd, False)
        outlet = OutputPipe(self._loop, fd, cap=sys.maxsize)
        outlet.on_chunk = lambda data: self._print(Output(channel=channel, data=data))
        self._outlets = (*self._outlets, outlet)

    def _print(self, output: Output) -> None:
        self._num_printed += len(output.data)
        if self._num_printed - self._num_taken >= WINDOW_BYTES:
            for outlet in self._outlets:
                outlet.pause()
        self._on_output(output)

    async def feed(self, given: ProcessInput) -> None:
        self._num_taken = max(self._num_taken, given.taken)
        if self._num_printed - self._num_taken < WINDOW_BYTES:
            resume(*self._outlets)
        if given.terminal is not None:
            self._set_size(given.terminal)
        async with self._feeding:
            # What came already may be told again.
            new = given.stdin[max(0, self._stdin_at - given.stdin_at) :]
            await self._write(new)
            if given.closes_stdin and self._stdin >= 0:
                await self._close_stdin()

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._stdin < 0:
                raise BrokenPipeError(errno.EPIPE, "its stdin is closed")
            try:
                size = os.write(self._stdin, view)
            except BlockingIOError:
                await self._until_writable()
                continue
            self._stdin_at += size
            view = view[size:]

    async def _until_writable(self) -> None:
        """Or until it has ended."""
        writable: asyncio.Future[None] = self._loop.create_future()
        fd = os.dup(self._stdin)  # a number of our own: the other may be closed meanwhile
        self._loop.add_writer(fd, _mark, writable)
        try:
            waits: list[asyncio.Future[Any]] = [writable, self._over]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._loop.remove_writer(fd)
            os.close(fd)

    async def _close_stdin(self) -> None:
        if self._command.terminal is not None:
            await self._write(END_OF_FILE)
            return
        os.close(self._stdin)
        self._stdin = -1

    def _set_size(self, size: TerminalSize) -> None:
        if self._command.terminal is not None and self._stdin >= 0:
            fcntl.ioctl(
                self._stdin, termios.TIOCSWINSZ, struct.pack("4H", size.rows, size.columns, 0, 0)
            )

    async def signal(self, number: int) -> None:
        if not self._over.done():
            await self._told(request.SIGNAL, mode=number)

    async def _told(self, verb: int, *, mode: int = 0) -> None:
        await self._box.told(verb, path=b"%d" % self.number, mode=mode)

    async def resize(self, cores: tuple[int, ...]) -> None:
        if not self._over.done():
            self._hold.resize(cores)
            self._meter.resize(len(cores), now=monotonic())

    def end(self) -> None:
        if self._over.done() or self._is_ended_by_us:
            return
        self._is_ended_by_us = True
        late = self._loop.call_later(GRACE_S, self._box.kill)
        self._over.add_done_callback(lambda _: late.cancel())
        self._box.run_later(self._end())

    async def _end(self) -> None:
        with contextlib.suppress(SandboxError):  # It is gone, and so is this.
            await self._told(request.END_PARALLEL)

    async def wait(self) -> CommandResult:
        return await asyncio.shield(self._over)

    def kill(self) -> None:
        """Init did not end it in time."""
        self._is_overdue = True
        self._box.kill()

    def on_reply(self, reply: InitReply) -> None:
        if reply.kind != init.OUTPUT:
            self._finish(reply)
            return
        self.pid = reply.figures[0]
        if self._command.terminal is not None:
            self._take_terminal(reply)
        resume(*self._outlets)
        if not self.started.done():
            self.started.set_result(None)

    def _take_terminal(self, reply: InitReply) -> None:
        if not reply.fds:
            self._finish_with(SandboxError("too many open files here to take a terminal"))
            self.end()
            return
        (self._stdin,) = reply.take()
        self._add_outlet(os.dup(self._stdin), "stdout")

    def on_lost(self, reason: str) -> None:
        """The sandbox died under it."""
        self._box.run_later(self._post_mortem(reason))

    async def _post_mortem(self, reason: str) -> None:
        box, groups = self._box, self._box.traits.groups
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(box.ended.wait(), GRACE_S)
        if self._is_overdue:
            self._finish(InitReply.killed(flags=init.TIMED_OUT))
        elif groups is not None and box.num_ooms > groups.num_ooms:
            self._finish(InitReply.killed(out_of_memory=True))
        else:
            self._finish_with(SandboxGone(f"{box.name}: {reason}"))

    def _finish(self, reply: InitReply) -> None:
        self._meter.stop(monotonic())
        for outlet in self._outlets:
            outlet.drain()
        try:
            memory = self._memory(reply)
            ending = result_of(reply, NOTHING_PRINTED, memory=memory, meter=self._meter)
        except SandboxError as error:
            self._finish_with(error)
        else:
            self._finish_with(self._room.judged(ending) if ending.exit_code else ending)

    def _memory(self, reply: InitReply) -> Memory | None:
        """An out-of-memory kill counts for this command if it was killed, and not by us."""
        groups = self._box.traits.groups
        if groups is None or not self._box.is_alive or reply.kind != init.EXITED:
            return None
        was_killed = reply.status == init.KILLED and not reply.flags
        return Memory(was_killed and groups.note_ooms(groups.read_ooms()), groups.read_peak())

    def _finish_with(self, ending: CommandResult | SandboxError) -> None:
        if self._over.done():
            return
        self._watch.remove(self)
        self._hold.release()
        self._close()
        if isinstance(ending, CommandResult):
            self._over.set_result(ending)
        else:
            self._over.set_exception(ending)
            self._over.exception()  # looked at: it may have no waiter
        if not self.started.done():
            self.started.set_result(None)
        self._on_over(self)

    def _close(self) -> None:
        for outlet in self._outlets:
            outlet.close()
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


def _mark(writable: asyncio.Future[None]) -> None:
    if not writable.done():
        writable.set_result(None)
