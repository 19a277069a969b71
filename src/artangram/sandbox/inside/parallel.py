"""Commands that run beside the main one and beside each other, as the init of a sandbox sees them.

Each is known by the number of its request, has a deadline of its own, and ends alone: only what
descends from it ends with it. `init.c` does the same.
"""

from __future__ import annotations

import errno
import os
import time

from artangram.sandbox.inside import processes, request

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from resource import struct_rusage

    Fork = Callable[[list[bytes], dict[bytes, bytes], list[int]], int]
    Spawn = Callable[[request.InitRequest, list[int], Fork], int]
    """Starts the program of a request on three descriptors."""


class ParallelCommand:
    """One of them, from its start until its end is answered."""

    __slots__ = (
        "began_at",
        "ends_at",
        "flags",
        "is_dead",
        "number",
        "pid",
        "status",
        "told",
        "usage",
    )

    def __init__(
        self, number: int, pid: int, told: int, *, began_at: float, ends_at: float
    ) -> None:
        self.number = number
        self.pid = pid
        #: Where it writes why it could not start.
        self.told = told
        self.began_at = began_at
        self.ends_at = ends_at
        self.flags = 0
        self.is_dead = False
        self.status = 0
        self.usage = (0, 0)

    def take_told(self) -> int:
        """Why it was none; 0 if it was one."""
        problem = os.read(self.told, 16)
        os.close(self.told)
        return int(problem or b"0")


class ParallelCommands:
    """Those that have not been answered for."""

    def __init__(self) -> None:
        self._all: dict[int, ParallelCommand] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def leaders(self) -> list[int]:
        """Of those that run."""
        return [one.pid for one in self._all.values() if not one.is_dead]

    @property
    def next_due_at(self) -> float:
        ends = [one.ends_at for one in self._all.values() if not one.flags]
        return min(ends, default=float("inf"))

    def overdue(self, now: float) -> list[ParallelCommand]:
        return [one for one in self._all.values() if not one.flags and now >= one.ends_at]

    def named(self, text: bytes) -> ParallelCommand | None:
        """By the number of its request; `None` if it has ended."""
        for one in self._all.values():
            if one.number == int(text) and not one.is_dead:
                return one
        return None

    def start(
        self, asked: request.InitRequest, fds: list[int], spawn: Spawn
    ) -> tuple[ParallelCommand, int]:
        """Start one; also returns where its terminal is read, -1 without one."""
        if len(self._all) >= request.MOST_PARALLEL:
            raise OSError(errno.EMFILE, "too many commands at once")
        has_terminal = bool(asked.flags & request.TERMINAL)
        ours = its = -1
        if has_terminal:
            ours, its = processes.open_terminal(asked.rlimits.pop(request.WINDOW))
        elif len(fds) < 3:
            raise OSError(errno.EBADF, "no descriptors to run on")
        told, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        began_at = time.monotonic()
        try:
            pid = spawn(
                asked,
                [its] * 3 if has_terminal else fds[:3],
                lambda words, environ, stdio: processes.spawn_apart(
                    words, environ, stdio, telling=telling, has_terminal=has_terminal
                ),
            )
        except OSError:
            os.close(told)
            if ours >= 0:
                os.close(ours)
            raise
        finally:
            os.close(telling)
            if its >= 0:
                os.close(its)
        ends_at = began_at + asked.timeout_s
        one = ParallelCommand(asked.number, pid, told, began_at=began_at, ends_at=ends_at)
        self._all[pid] = one
        return one, ours

    def note(self, pid: int, status: int, usage: struct_rusage) -> bool:
        """A process was reaped: was it one of these?"""
        one = self._all.get(pid)
        if one is None:
            return False
        one.is_dead = True
        one.status = status
        one.usage = int((usage.ru_utime + usage.ru_stime) * 1e6), usage.ru_maxrss
        return True

    def take_dead(self) -> ParallelCommand | None:
        """One that was reaped and is to be answered for now."""
        for pid, one in self._all.items():
            if one.is_dead:
                return self._all.pop(pid)
        return None
