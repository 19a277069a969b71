"""Keeps exactly as many workers busy as there are cores, until every test has ended.

- A worker is busy from the moment it gets a portion to the end of that portion. When cores go
  away, surplus workers get no further portion: they keep what they hold and sleep. When cores come
  back they go on first. So processes outnumber cores for one portion at most.
- A worker in the last of some short tests gets its next portion before it has to ask for it.
- A worker that dies fails the test it was running and nothing else; its other tests go to another.
- Says what happened to an `SuiteListener`, in this process and one thing at a time; prints nothing.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from .channel import ENDED, FAILED, LATE, READY, STOPPED, WARNED, Frame
from .work import SuiteChunk, SuiteQueue
from .workergroup import WorkerDeath, WorkerGroup, WorkerSlot

LOOK_S = 0.05
"""So late a change of cores may be noticed while no portion ends."""
ABORT_GRACE_S = 1.0
"""A worker whose test has timed out has so long to write its last words."""
FINISH_GRACE_S = 60.0
"""Workers have so long without a sign of life to tear down and exit when all tests are over."""
MAX_STILLBORN = 3
"""The most workers in a row that may die before they are ready."""


class SuiteListener(Protocol):
    """Hears what happens."""

    @property
    def wants_to_stop(self) -> bool: ...

    def on_reports(self, test: int, reports: list[dict[str, Any]], *, is_over: bool) -> None: ...

    def on_crash(self, test: int, why: str, *, duration_s: float) -> None: ...

    def on_warning(self, seen: dict[str, Any]) -> None: ...

    def on_stop(self, wish: dict[str, Any]) -> None: ...

    def on_note(self, text: str) -> None: ...

    def on_width(self, width: int) -> None:
        """Set how many workers may be busy from now on."""
        ...


class Options(NamedTuple):
    """`test_timeout_s` of 0 means: none."""

    workers: int
    test_timeout_s: float = 0.0


class SuiteController:
    """One run of one suite."""

    def __init__(
        self,
        workers: WorkerGroup,
        work: SuiteQueue,
        *,
        audience: SuiteListener,
        cores: Callable[[], int],
        options: Options,
    ) -> None:
        self._workers = workers
        self._work = work
        self._audience = audience
        self._cores = cores
        self._options = options
        self._limit = options.workers
        self._width = 0
        self._stillborn = 0

    def run(self) -> None:
        """Run everything. When it returns or raises, no worker is left."""
        try:
            self._staff()
            while self._busy():
                self._handle(self._workers.look(LOOK_S))
                self._check_time()
                self._staff()
            self._finish()
        finally:
            self._workers.close()

    def _busy(self) -> list[WorkerSlot]:
        return [hand for hand in self._workers.hands if hand.running]

    def _free(self) -> int:
        """How many more workers could be busy on the cores there are now; negative if too many."""
        width = max(1, min(self._cores(), self._limit))
        if width != self._width:
            self._width = width
            self._audience.on_width(width)
        return width - len(self._busy())

    def _staff(self) -> None:
        """Give work to sleeping or new workers while there are cores for them."""
        free = self._free()
        while free > 0 and not self._audience.wants_to_stop:
            hand = self._next_hand()
            if hand is None or hand.chunk is None:
                return
            hand.hand(self._work.portion(hand.chunk))
            free -= 1

    def _next_hand(self) -> WorkerSlot | None:
        """A worker with something to do: first those that hold a chunk, then others, then new."""
        resting = [hand for hand in self._workers.hands if not hand.running]
        resting.sort(key=lambda hand: hand.began_at, reverse=True)
        for hand in resting:
            if hand.chunk is not None and hand.chunk.tests:
                return hand
        chunk = self._work.take(self._held())
        if chunk is None:
            return None
        free = resting[0] if resting else self._hire()
        if free is None:
            self._work.put_back(chunk)
            return None
        free.chunk = chunk
        return free

    def _held(self) -> Iterator[SuiteChunk]:
        return (hand.chunk for hand in self._workers.hands if hand.chunk is not None)

    def _hire(self) -> WorkerSlot | None:
        if len(self._workers.hands) >= self._limit:
            return None
        try:
            return self._workers.hire()
        except OSError as problem:
            if not self._workers.hands:
                raise
            self._limit = len(self._workers.hands)
            self._audience.on_note(f"no room for more than {self._limit} workers: {problem}")
            return None

    def _handle(self, seen: list[tuple[WorkerSlot, Frame | WorkerDeath]]) -> None:
        for hand, what in seen:
            if isinstance(what, WorkerDeath):
                self._on_death(hand, what)
            elif what.kind in (ENDED, FAILED):
                self._on_ended(hand, what)
            elif what.kind == READY:
                hand.is_ready = True
                self._stillborn = 0
            elif what.kind == LATE:
                self._audience.on_reports(what.number, what.value(), is_over=False)
            elif what.kind == WARNED:
                self._audience.on_warning(what.value())
            elif what.kind == STOPPED:
                # It ends the test it is in and begins none of the others.
                hand.running = deque([hand.running[0]] if hand.running else [])
                self._audience.on_stop(what.value())

    def _on_ended(self, hand: WorkerSlot, frame: Frame) -> None:
        assert hand.running[0] == frame.number, f"{hand} ran {frame.number} out of turn"
        hand.last = hand.running.popleft()
        hand.began_at = time.monotonic()
        # A worker must not wait while we print, unless a failure may be the end of the run.
        if frame.kind == ENDED:
            self._top_up(hand)
            self._staff()
        self._audience.on_reports(frame.number, frame.value(), is_over=True)

    def _top_up(self, hand: WorkerSlot) -> None:
        if len(hand.running) != 1 or not hand.chunk or self._audience.wants_to_stop:
            return
        if self._work.is_short(hand.running[0], hand.chunk) and self._free() >= 0:
            hand.hand(self._work.portion(hand.chunk))

    def _on_death(self, hand: WorkerSlot, death: WorkerDeath) -> None:
        if hand.is_done:
            return
        if not hand.is_ready:
            self._on_stillborn(death)
        elif hand.running:
            why = hand.killed_for or "the process that ran it died"
            duration_s = time.monotonic() - hand.began_at
            test = hand.running.popleft()
            self._audience.on_crash(test, f"{why}: {death.how}", duration_s=duration_s)
        elif hand.last is not None:
            self._audience.on_note(f"worker {hand.number} was lost between tests: {death.how}")
        if hand.chunk is not None:
            # It died in the first test it had; those behind it were never begun.
            hand.chunk.tests.extendleft(reversed(hand.running))
            self._work.put_back(hand.chunk)

    def _on_stillborn(self, death: WorkerDeath) -> None:
        self._stillborn += 1
        if self._stillborn >= MAX_STILLBORN:
            raise RuntimeError(f"workers die before they run anything: {death.how}")

    def _check_time(self) -> None:
        limit_s = self._options.test_timeout_s
        if not limit_s:
            return
        now = time.monotonic()
        for hand in self._busy():
            over_s = now - hand.began_at - limit_s
            if over_s > ABORT_GRACE_S:
                hand.kill(hand.killed_for, by=signal.SIGKILL)
            elif over_s > 0 and not hand.killed_for:
                # Not SIGKILL at once: this one makes Python write where it was.
                hand.kill(f"it took longer than {limit_s:g} s", by=signal.SIGABRT)

    def _finish(self) -> None:
        """Let all workers tear down what their tests shared."""
        for hand in self._workers.hands:
            hand.finish()
        deadline = time.monotonic() + FINISH_GRACE_S
        while self._workers.hands and time.monotonic() < deadline:
            seen = self._workers.look(0.002)
            if seen:
                deadline = time.monotonic() + FINISH_GRACE_S
            for hand, what in seen:
                if isinstance(what, WorkerDeath):
                    self._on_unfinished(hand, what.how)
                else:
                    self._handle([(hand, what)])
        for hand in self._workers.hands:
            self._on_unfinished(hand, f"it did not end within {FINISH_GRACE_S:g} s")

    def _on_unfinished(self, hand: WorkerSlot, how: str) -> None:
        if not hand.is_done and hand.last is not None:
            text = f"tearing down what it shared with others failed: {how}"
            self._audience.on_crash(hand.last, text, duration_s=0.0)
