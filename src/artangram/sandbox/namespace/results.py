"""Translate between the records of the protocol and what travels to and from PID 1."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass

from artangram.sandbox.errors import SandboxError
from artangram.sandbox.inside import init
from artangram.sandbox.inside.request import RUN, Request
from artangram.sandbox.namespace.cores import Meter
from artangram.sandbox.namespace.exchange import Outlet
from artangram.sandbox.protocol import DEFAULT_PATH, WORK_DIR, Command, CommandResult

SIGKILL = 9
NOT_FOUND, NOT_STARTABLE = 127, 126
ENOENT = 2
BASE_ENVIRON = {"PATH": DEFAULT_PATH, "HOME": WORK_DIR, "USER": "box", "LANG": "C.UTF-8"}


@dataclass(slots=True, kw_only=True)
class Reply:
    """One answer of PID 1. Whoever gets it closes its descriptors."""

    request: int
    kind: int
    status: int = 0
    flags: int = 0
    figures: tuple[int, ...] = (0, 0, 0, 0, 0)
    text: str = ""
    fds: tuple[int, ...] = ()
    out_of_memory: bool = False

    @classmethod
    def parse(cls, data: bytes, fds: list[int]) -> Reply:
        if len(data) < init.REPLY.size:
            return cls(request=-1, kind=init.FAILED, fds=tuple(fds))
        request, kind, status, flags, *figures = init.REPLY.unpack_from(data)
        text = data[init.REPLY.size :].decode(errors="replace")
        return cls(
            request=request,
            kind=kind,
            status=status,
            flags=flags,
            figures=tuple(figures),
            text=text,
            fds=tuple(fds),
        )

    @classmethod
    def killed(cls, *, flags: int = 0, out_of_memory: bool = False) -> Reply:
        """What a command's answer is when its whole sandbox had to die."""
        return cls(
            request=0, kind=init.EXITED, status=SIGKILL, flags=flags, out_of_memory=out_of_memory
        )

    @property
    def kept(self) -> int:
        return self.figures[3] if self.kind == init.EXITED else 0

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = ()


def absolute(path: str, *, home: str) -> bytes:
    """Where a path of the protocol is, for a sandbox whose `/work` is `home`."""
    if "\0" in path:
        raise ValueError("a path may not contain a NUL")
    joined = posixpath.join(WORK_DIR, path)
    if home != WORK_DIR and (joined + "/").startswith(WORK_DIR + "/"):
        joined = home + joined.removeprefix(WORK_DIR)
    return os.fsencode(joined)


def order_of(number: int, command: Command, *, home: str, rlimits: dict[int, int]) -> Request:
    """What init needs to know to start the command."""
    environ = BASE_ENVIRON | command.environ
    if home != WORK_DIR:
        environ = BASE_ENVIRON | {"HOME": home, "TMPDIR": home} | command.environ
    return Request(
        number,
        RUN,
        path=absolute(command.cwd, home=home),
        words=[os.fsencode(word) for word in command.argv],
        environ=[os.fsencode(f"{name}={value}") for name, value in environ.items()],
        rlimits=rlimits,
        timeout_s=command.timeout_s,
        keep=command.keep,
    )


def result_of(
    reply: Reply,
    stdout: Outlet,
    stderr: Outlet,
    *,
    memory: tuple[bool, int] | None,
    meter: Meter,
) -> CommandResult:
    if reply.kind == init.REFUSED:
        raise SandboxError(f"the command was refused: {os.strerror(reply.status)}")
    if reply.kind == init.NOT_STARTED:
        code = NOT_FOUND if reply.status == ENOENT else NOT_STARTABLE
        return CommandResult(exit_code=code, start_error=os.strerror(reply.status))
    cpu_us, max_rss_kb, killed, kept, run_us = reply.figures
    signal = os.WTERMSIG(reply.status) if os.WIFSIGNALED(reply.status) else 0
    out_of_memory, peak = memory or (False, max_rss_kb << 10)
    return CommandResult(
        exit_code=128 + signal if signal else os.WEXITSTATUS(reply.status),
        signal=signal,
        timed_out=bool(reply.flags & init.TIMED_OUT),
        out_of_memory=out_of_memory or reply.out_of_memory,
        cpu_s=cpu_us / 1e6,
        run_s=run_us / 1e6,
        lease_wait_s=meter.lease_wait_s,
        core_s=meter.core_s,
        peak_memory_bytes=peak,
        leftovers_killed=killed,
        leftovers_kept=kept,
        truncated_bytes=stdout.num_truncated + stderr.num_truncated,
        stdout=stdout.data,
        stderr=stderr.data,
    )
