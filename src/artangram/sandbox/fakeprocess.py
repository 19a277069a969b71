"""A process of a fake sandbox that runs beside others."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import CommandResult

if TYPE_CHECKING:
    from artangram.sandbox.fakeprograms import Console, Program

SIGKILL = 9


class FakeProcess:
    """See `process.SandboxProcess`."""

    def __init__(self, console: Console, program: Program | None, *, pid: int) -> None:
        self.pid = pid if program is not None else 0
        self.cores = console.command.cores
        self._console = console
        self._at = 0
        self._killed_by = 0
        self._timed_out = False
        self._task = asyncio.create_task(self._run(program))

    async def _run(self, program: Program | None) -> CommandResult:
        if program is None:
            return CommandResult(exit_code=127, start_error=os.strerror(errno.ENOENT))
        command, loop = self._console.command, asyncio.get_running_loop()
        began_at, timer = loop.time(), loop.call_later(command.timeout_s, self._time_out)
        try:
            started = program(self._console, command.argv)
            code = started if isinstance(started, int) else await started
        except asyncio.CancelledError:
            code = 128 + (self._killed_by or SIGKILL)
        finally:
            timer.cancel()
        run_s, timed_out = loop.time() - began_at, self._timed_out
        number = self._killed_by if code == 128 + self._killed_by else 0
        return CommandResult(exit_code=code, signal=number, timed_out=timed_out, run_s=run_s)

    def _time_out(self) -> None:
        self._timed_out = True
        self.end()

    async def feed(self, given: ProcessInput) -> None:
        new = given.stdin[max(0, self._at - given.stdin_at) :]
        if new and self._task.done():
            raise BrokenPipeError(errno.EPIPE, "its stdin is closed")
        self._at += len(new)
        for piece in [new] * bool(new) + [b""] * given.closes_stdin:
            self._console.fed.put_nowait(piece)

    async def signal(self, number: int) -> None:
        self._kill(number)

    async def resize(self, cores: tuple[int, ...]) -> None:
        self.cores = cores

    def end(self) -> None:
        self._kill(SIGKILL)

    def _kill(self, number: int) -> None:
        if not self._task.done():
            self._killed_by = number
            self._task.cancel()

    async def wait(self) -> CommandResult:
        return await asyncio.shield(self._task)


async def echo_fed(console: Console) -> int:
    """What `cat` does beside others."""
    while data := await console.fed.get():
        console.print(data)
    return 0
