"""Translate between the records of the protocol and what travels to and from PID 1."""

from __future__ import annotations

import os
import posixpath

from msgspec import Struct

from artangram.sandbox.errors import SandboxError
from artangram.sandbox.inside import init
from artangram.sandbox.inside.processes import NO_DIRECTORY
from artangram.sandbox.inside.request import run_order
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.network import PROXY_ENVIRON, is_proxied
from artangram.sandbox.protocol import DEFAULT_PATH, Command, CommandResult, CoreMeter
from artangram.sandbox.user import WORK_DIR

SIGKILL = 9
NOT_FOUND, NOT_STARTABLE = 127, 126
ENOENT = 2
BASE_ENVIRON = {"PATH": DEFAULT_PATH, "HOME": WORK_DIR, "USER": "box", "LANG": "C.UTF-8"}
_BASE_SETTINGS = [f"{name}={value}" for name, value in BASE_ENVIRON.items()]


_HEAD_BYTES = init.REPLY.size
_NO_FIGURES = (0, 0, 0, 0, 0, init.UNKNOWN, init.UNKNOWN, 0, 0)


class InitReply:
    """One answer of PID 1. It closes its descriptors, also if its waiter was cancelled."""

    __slots__ = ("fds", "figures", "flags", "is_out_of_memory", "kind", "request", "status", "text")

    def __init__(self, data: bytes, fds: list[int]) -> None:
        self.fds = fds
        if len(data) < _HEAD_BYTES:
            data = init.REPLY.pack(0, init.FAILED, 0, 0, *_NO_FIGURES)
        self.request, self.kind, self.status, self.flags, *figures = init.REPLY.unpack_from(data)
        self.figures = figures
        self.text = data[_HEAD_BYTES:]
        self.is_out_of_memory = False

    @classmethod
    def killed(cls, *, flags: int = 0, out_of_memory: bool = False) -> InitReply:
        """What a command's answer is when its whole sandbox had to die."""
        reply = cls(init.REPLY.pack(0, init.EXITED, SIGKILL, flags, *_NO_FIGURES), [])
        reply.is_out_of_memory = out_of_memory
        return reply

    @property
    def kept(self) -> int:
        return self.figures[3] if self.kind == init.EXITED else 0

    @property
    def descriptor(self) -> int:
        """The only one it brings. `SandboxError` if this process had no room for it."""
        if not self.fds:
            raise SandboxError("too many open files here to take one more from a sandbox")
        return self.fds[0]

    def take(self) -> list[int]:
        """Its descriptors, which are the caller's from now on."""
        taken, self.fds = self.fds, []
        return taken

    def close(self) -> None:
        for fd in self.take():
            os.close(fd)

    def __del__(self) -> None:
        if self.fds:
            self.close()


class Printed(Struct, frozen=True):
    """What a command printed, as far as its cap allows."""

    stdout: bytes
    stderr: bytes
    num_truncated: int


def printed_in(reply: InitReply, *, cap: int) -> Printed:
    """The output that came with a reply."""
    num_out = reply.figures[7]
    stdout, stderr = reply.text[:num_out], reply.text[num_out:]
    if len(stdout) <= cap and len(stderr) <= cap:
        return Printed(stdout, stderr, 0)
    kept = stdout[:cap], stderr[:cap]
    return Printed(*kept, len(reply.text) - len(kept[0]) - len(kept[1]))


class Memory(Struct, frozen=True):
    """What the memory group tells after a command."""

    was_out: bool
    peak_bytes: int


def absolute(path: str, *, work_dir: str) -> str:
    """Where a path of the protocol is, for a sandbox whose `/work` is `work_dir`."""
    if path == WORK_DIR:
        return work_dir
    if "\0" in path:
        raise ValueError("a path may not contain a NUL")
    joined = posixpath.join(WORK_DIR, path)
    if work_dir != WORK_DIR and (joined + "/").startswith(WORK_DIR + "/"):
        joined = work_dir + joined.removeprefix(WORK_DIR)
    return joined


def order_of(
    number: int,
    command: Command,
    *,
    traits: Traits,
    rlimits: dict[int, int],
    flags: int,
    group: int,
) -> bytes:
    """What init needs to know to start the command."""
    environ = command.environ
    if is_proxied(traits.limits.network):
        environ = PROXY_ENVIRON | environ
    settings = _settings(environ, work_dir=traits.work_dir)
    cwd = absolute(command.cwd, work_dir=traits.work_dir)
    return run_order(
        number,
        texts=os.fsencode("\0".join((cwd, *command.argv, *settings, ""))),
        num_words=len(command.argv),
        num_environ=len(settings),
        rlimits=rlimits,
        timeout_s=command.timeout_s,
        flags=flags,
        group=group,
    )


def _settings(environ: dict[str, str], *, work_dir: str) -> list[str]:
    if work_dir != WORK_DIR:
        environ = {"HOME": work_dir, "TMPDIR": work_dir} | environ
    if BASE_ENVIRON.keys().isdisjoint(environ):
        return [*_BASE_SETTINGS, *[f"{name}={value}" for name, value in environ.items()]]
    return [f"{name}={value}" for name, value in (BASE_ENVIRON | environ).items()]


def result_of(
    reply: InitReply, printed: Printed, *, memory: Memory | None, meter: CoreMeter
) -> CommandResult:
    if reply.kind == init.REFUSED:
        raise SandboxError(f"the command was refused: {os.strerror(reply.status)}")
    if reply.kind == init.NOT_STARTED:
        code = NOT_FOUND if reply.status == ENOENT else NOT_STARTABLE
        problem = os.strerror(reply.status & ~NO_DIRECTORY)
        if reply.status & NO_DIRECTORY:
            problem = f"its working directory: {problem}"
        return CommandResult(exit_code=code, start_error=problem)
    cpu_us, max_rss_kb, killed, kept, run_us, *_ = reply.figures
    status = reply.status
    signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    was_out = memory is not None and memory.was_out
    return CommandResult(
        exit_code=128 + signal if signal else os.WEXITSTATUS(status),
        signal=signal,
        timed_out=bool(reply.flags & init.TIMED_OUT),
        out_of_memory=was_out or reply.is_out_of_memory,
        cpu_s=cpu_us / 1e6,
        run_s=run_us / 1e6,
        lease_wait_s=meter.lease_wait_s,
        core_s=meter.core_s,
        peak_memory_bytes=max_rss_kb << 10 if memory is None else memory.peak_bytes,
        leftovers_killed=killed,
        leftovers_kept=kept,
        truncated_bytes=printed.num_truncated,
        stdout=printed.stdout,
        stderr=printed.stderr,
    )
