"""The processes of a sandbox besides its init, and how to reach all of them at once.

- `Namespace`: init is PID 1 of a namespace of its own. `kill(-1)` reaches all other processes,
  atomically with respect to fork; elsewhere it would reach the whole machine.
- `Descendants`: init shares the machine's processes and has adopted every orphan below it. It
  looks again until it finds no new process; one that forks faster is found by the next look.
"""

# ruff: noqa: SIM105 - `contextlib` would be imported into every sandbox

from __future__ import annotations

import os
import time

from artangram.sandbox.inside import linux

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from typing import Protocol

    class Population(Protocol):
        def pids(self) -> list[int]:
            """All processes but init, dead ones included."""

        def signal(self, number: int) -> None:
            """Send to all processes but init."""

        def end(self) -> int:
            """Kill and reap all processes; how many there were, dead ones included."""

        def leave(self) -> None:
            """Init is about to end: see to it that no process stays."""


LOOK_AGAIN_S = 0.0005


class Namespace:
    """All processes of the PID namespace."""

    def pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]

    def signal(self, number: int) -> None:
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            pass

    def end(self) -> int:
        self.signal(linux.SIGKILL)
        count = 0
        try:
            while True:
                os.waitpid(-1, linux.WALL)
                count += 1
        except ChildProcessError:
            return count

    def leave(self) -> None:
        """The kernel ends a namespace with its PID 1."""


class Descendants:
    """All processes below this one; needs `PR_SET_CHILD_SUBREAPER`."""

    def pids(self) -> list[int]:
        return descendants(os.getpid())

    def signal(self, number: int) -> None:
        reached: set[int] = set()
        while missing := set(self.pids()) - reached:
            for pid in missing:
                signal_one(pid, number)
            reached |= missing

    def end(self) -> int:
        count = 0
        try:
            while True:
                self.signal(linux.SIGKILL)
                while os.waitpid(-1, os.WNOHANG | linux.WALL)[0]:
                    count += 1
                time.sleep(LOOK_AGAIN_S)
        except ChildProcessError:
            return count

    def leave(self) -> None:
        self.end()


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, without it."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children", "rb") as listed:
                found += [int(child) for child in listed.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended; its children have another parent now
    return found


def signal_one(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended meanwhile, and its number may belong to a stranger
