"""Lets requests out so that the API never counts more than its limit in a window.

The scheduler counts when leases begin, the API when requests arrive. Between the two lie our own
event loop, a connection to be made and the network, so a burst can arrive denser than it was
granted. What is known for sure: a request arrives after it left, and the later its answer came than
the quickest one does, the later it may have arrived. So:

- the request that is `limit` after another one leaves no earlier than a window after that one left,
  plus what its answer took beyond the quickest answer;
- but an API that computes for a while is not slow to be reached: beyond `spread_s`, or without an
  answer yet, a request is taken to have arrived `spread_s` late.

Then no window at the API holds more than `limit` requests, provided that deliveries differ by at
most `spread_s` and the quickest answer was to a quick delivery. The scheduler's window is longer
than the API's, too (see `spec.quota`), so that leases come at the pace of this gate and do not pile
up in front of it.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable

A_MOMENT_S = 0.001
"""A clock may not advance by less, and then waiting for less would never end."""


class Passage:
    """One request on its way."""

    __slots__ = ("_gate", "answer_s", "sent_at")

    def __init__(self, gate: "Gate") -> None:
        self._gate = gate
        self.sent_at: float | None = None
        self.answer_s: float | None = None

    def sent(self) -> None:
        """It left this machine."""
        if self.sent_at is None:
            self.sent_at = self._gate.now()
            self._gate.moved.set()

    def answered(self) -> None:
        """Its answer began to arrive, or it is certain that none will."""
        if self.answer_s is None:
            self.sent()
            assert self.sent_at is not None
            self.answer_s = self._gate.now() - self.sent_at
            self._gate.quickest_s = min(self._gate.quickest_s, self.answer_s)


class Gate:
    """The window of one API, as it is seen from there."""

    def __init__(
        self, limit: int | None, window_s: float, *, spread_s: float, now: Callable[[], float]
    ) -> None:
        self.limit = limit
        self.window_s = window_s
        self.spread_s = spread_s
        self.now = now
        #: Some request has left since this was cleared.
        self.moved = asyncio.Event()
        self._latest: deque[Passage] = deque(maxlen=limit)
        self.quickest_s = math.inf
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Gate: {len(self._latest)} of {self.limit} in {self.window_s:g} s>"

    async def passage(self, units: int = 1) -> Passage:
        """Wait until a request worth so many calls may leave; in order of arrival."""
        passage = Passage(self)
        if self.limit is None:
            return passage
        async with self._turn:
            try:
                for _ in range(units):
                    await self._until_open()
                    self._latest.append(passage)
            except asyncio.CancelledError:
                passage.answered()  # What is counted already must not hold up the others.
                raise
        return passage

    def has_room(self) -> bool:
        """Could a request leave now?"""
        opens_at = self._opens_at()
        return opens_at is not None and opens_at <= self.now()

    async def _until_open(self) -> None:
        while (opens_at := self._opens_at()) is None or opens_at > self.now():
            if opens_at is None:
                self.moved.clear()
                await self.moved.wait()
                continue
            # By the end of the bare window an answer may have come and made it earlier.
            bare_at = opens_at - self._late_s(self._latest[0])
            wakes_at = bare_at if self.now() < bare_at else opens_at
            await asyncio.sleep(max(A_MOMENT_S, wakes_at - self.now()))

    def _opens_at(self) -> float | None:
        """When the next request may leave; `None` while that depends on one not sent yet."""
        if len(self._latest) < (self.limit or 1):
            return 0.0
        first = self._latest[0]
        if first.sent_at is None:
            return None
        return first.sent_at + self._late_s(first) + self.window_s

    def _late_s(self, passage: Passage) -> float:
        """By how much a request may have arrived later than the quickest."""
        if passage.answer_s is None:
            return self.spread_s
        return min(self.spread_s, passage.answer_s - self.quickest_s)
