"""The programs that a fake sandbox has, and what they see of it."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from artangram.sandbox.fakeprocess import echo_fed
from artangram.sandbox.process import OnOutput
from artangram.sandbox.protocol import DEFAULT_PATH, Command, Output
from artangram.sandbox.user import WORK_DIR


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
        return echo_fed(console)
    if not argv[1:]:
        console.print(console.command.stdin)
    for path in argv[1:]:
        data = console.files.get(console.resolve(path))
        if data is None:
            console.print(f"cat: {path}: No such file or directory\n".encode(), error=True)
            return 1
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
