"""The worker processes, as the controller sees them.

- `hire` forks one; `look` tells what they sent and which died, after at most the time given.
- Every worker hired ends through `look` as dead or through `close`; no process is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import warnings
from collections import deque
from typing import NamedTuple

import pytest

from .channel import DONE, FINISH, RUN, Frame, WorkerChannel, pair
from .process import described, die_with
from .work import SuiteChunk, TestPortion
from .worker import serve

LAST_WORDS_BYTES = 1 << 16
MACHINERY = ("/_pytest/", "/pluggy/", "<frozen runpy>", os.path.dirname(__file__))


class WorkerSlot:
    """One worker: what it holds, what it runs."""

    def __init__(self, number: int, *, pid: int, channel: WorkerChannel, crash: int) -> None:
        self.number = number
        self.pid = pid
        self.channel = channel
        self.chunk: SuiteChunk | None = None
        self.running: deque[int] = deque()
        self.began_at = 0.0
        """When the first of `running` began, or the last one ended."""
        self.killed_for = ""
        self.is_ready = False
        self.is_done = False
        self.last: int | None = None
        self._crash = crash

    def __repr__(self) -> str:
        return f"<Hand {self.number}: pid {self.pid}, {len(self.running)} tests running>"

    def hand(self, portion: TestPortion) -> None:
        if not self.running:
            self.began_at = time.monotonic()
        self.running.extend(portion.tests)
        # A worker that died meanwhile is found out by `look`, and its tests are accounted for.
        with contextlib.suppress(OSError):
            self.channel.send(RUN, 0, {"tests": portion.tests, "then": portion.then})

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.send(FINISH)

    def kill(self, reason: str, *, by: signal.Signals) -> None:
        self.killed_for = reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, by)

    def last_words(self) -> str:
        """Where Python was when it crashed, without the frames of pytest and of this program."""
        text = os.pread(self._crash, LAST_WORDS_BYTES, 0).decode(errors="replace")
        return "\n".join(x for x in text.splitlines() if not any(part in x for part in MACHINERY))

    def release(self) -> None:
        self.channel.close()
        os.close(self._crash)


class WorkerDeath(NamedTuple):
    """How a worker ended, and where Python was then, if it could still say so."""

    how: str


class WorkerGroup:
    """All workers of one run."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._poll = select.poll()
        self._by_fd: dict[int, WorkerSlot] = {}
        self._hired = 0

    def __repr__(self) -> str:
        return f"<WorkerGroup of {len(self._by_fd)}>"

    @property
    def hands(self) -> list[WorkerSlot]:
        return list(self._by_fd.values())

    def hire(self) -> WorkerSlot:
        """Fork a worker. Raises `OSError` when the machine has no room for it."""
        ours, theirs = pair()
        crash = os.memfd_create("last-words")
        sys.stdout.flush()
        sys.stderr.flush()
        controller = os.getpid()
        with warnings.catch_warnings():
            # Native threads of numpy and friends look after themselves when forked.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                theirs.close()
                os.close(crash)
                raise
        if pid == 0:
            die_with(controller)
            ours.close()
            for hand in self.hands:
                hand.release()
            serve(self._session, theirs, number=self._hired, crash=crash)
        theirs.close()
        hand = WorkerSlot(self._hired, pid=pid, channel=ours, crash=crash)
        self._hired += 1
        self._by_fd[ours.fileno()] = hand
        self._poll.register(ours.fileno(), select.POLLIN)
        return hand

    def look(self, timeout_s: float) -> list[tuple[WorkerSlot, Frame | WorkerDeath]]:
        """What happened, each worker's own in order. A death comes after all it said."""
        ready = {fd for fd, _ in self._poll.poll(timeout_s * 1000)}
        seen: list[tuple[WorkerSlot, Frame | WorkerDeath]] = []
        for fd, hand in list(self._by_fd.items()):
            # Ask which died before the last frames are read, so that none comes after.
            status = self._ended(hand)
            if fd in ready or status is not None:
                frames = hand.channel.waiting()
                hand.is_done |= any(frame.kind == DONE for frame in frames)
                seen += [(hand, frame) for frame in frames]
            if status is not None:
                seen.append(
                    (hand, WorkerDeath(f"{described(status)}\n{hand.last_words()}".rstrip()))
                )
                self._forget(hand)
            elif fd in ready and hand.channel.is_closed:
                self._poll.unregister(fd)  # it would be ready for ever
        return seen

    def close(self) -> None:
        """End all that are left."""
        for hand in self.hands:
            hand.kill("closed", by=signal.SIGKILL)
            os.waitpid(hand.pid, 0)
            self._forget(hand)

    def _ended(self, hand: WorkerSlot) -> int | None:
        pid, status = os.waitpid(hand.pid, os.WNOHANG)
        return status if pid else None

    def _forget(self, hand: WorkerSlot) -> None:
        fd = hand.channel.fileno()
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)
        del self._by_fd[fd]
        hand.release()
