"""The programs of a fake sandbox, and a process of one that runs beside others."""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from artangram.sandbox.process import OnOutput, ProcessInput
from artangram.sandbox.protocol import DEFAULT_PATH, WORK_DIR, Command, CommandResult, Output

SIGKILL = 9


@dataclass(slots=True)
class Console:
    """What a fake program sees: its files, its stdin, and where it prints."""

    command: Command
    files: dict[str, bytes]
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    truncated_bytes: int = 0
    leftovers: int = 0
    fed: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    """What a process is told, piece by piece; an empty one is the end."""
    on_output: OnOutput | None = None

    def print(self, data: bytes, *, error: bool = False) -> None:
        if self.on_output is not None:
            self.on_output(Output(channel="stderr" if error else "stdout", data=data))
            return
        target = self.stderr if error else self.stdout
        room = max(0, self.command.output_bytes - len(target))
        target += data[:room]
        self.truncated_bytes += max(0, len(data) - room)

    def resolve(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.command.cwd, path))


Program = Callable[[Console, tuple[str, ...]], Coroutine[Any, Any, int] | int]
"""Answers with its exit code at once, or when it has ended."""


def _true(console: Console, argv: tuple[str, ...]) -> int:
    return 0


def _false(console: Console, argv: tuple[str, ...]) -> int:
    return 1


def _echo(console: Console, argv: tuple[str, ...]) -> int:
    console.print(" ".join(argv[1:]).encode() + b"\n")
    return 0


def _cat(console: Console, argv: tuple[str, ...]) -> Coroutine[Any, Any, int] | int:
    if not argv[1:] and console.command.parallel:
        return _echo_fed(console)
    if not argv[1:]:
        console.print(console.command.stdin)
    for path in argv[1:]:
        data = console.files.get(console.resolve(path))
        if data is None:
            console.print(f"cat: {path}: No such file or directory\n".encode(), error=True)
            return 1
        console.print(data)
    return 0


async def _echo_fed(console: Console) -> int:
    while data := await console.fed.get():
        console.print(data)
    return 0


async def _sleep(console: Console, argv: tuple[str, ...]) -> int:
    await asyncio.sleep(float(argv[1]))
    return 0


async def _yes(console: Console, argv: tuple[str, ...]) -> int:
    while True:
        console.print(b"y\n" * 4096)
        await asyncio.sleep(0.001)


def _pwd(console: Console, argv: tuple[str, ...]) -> int:
    console.print(console.command.cwd.encode() + b"\n")
    return 0


def _env(console: Console, argv: tuple[str, ...]) -> int:
    environ = {"PATH": DEFAULT_PATH, "HOME": WORK_DIR} | console.command.environ
    console.print("".join(f"{k}={v}\n" for k, v in environ.items()).encode())
    return 0


def _setsid(console: Console, argv: tuple[str, ...]) -> int:
    console.leftovers += 1
    return 0


PROGRAMS: dict[str, Program] = {
    "true": _true,
    "false": _false,
    "echo": _echo,
    "cat": _cat,
    "sleep": _sleep,
    "yes": _yes,
    "pwd": _pwd,
    "env": _env,
    "setsid": _setsid,
}


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
