"""Lets requests out so that the API never counts more than its limit in a window.

The scheduler counts when leases begin, the API when requests arrive. Between the two lie our own
event loop, a connection to be made and the network, so a burst can arrive denser than it was
granted. What is known for sure: a request arrives after it left and before its answer comes. So:

- the request that is `limit` after another one leaves no earlier than a window after that one's
  answer came;
- but an API that computes for a while is not slow to be reached: without an answer `spread_s` after
  it left, a request is taken to have arrived by then.

Then no window at the API holds more than `limit` requests, provided that deliveries differ by at
most `spread_s`, or answers come. The scheduler's window is longer than the API's, too (see
`spec.quota`), so that leases come at about the pace of this gate and do not pile up in front of it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

A_MOMENT_S = 0.001
"""A clock may not advance by less, and then waiting for less would never end."""


class RequestInFlight:
    """One request on its way."""

    __slots__ = ("_gate", "answer_s", "sent_at")

    def __init__(self, gate: "Gate") -> None:
        self._gate = gate
        self.sent_at: float | None = None
        self.answer_s: float | None = None

    def sent(self) -> None:
        """It left this machine, or it is certain that it never will."""
        if self.sent_at is None:
            self.sent_at = self._gate.now()
            self._gate.on_sent()

    def answered(self) -> None:
        """Its answer began to arrive."""
        self.sent()
        assert self.sent_at is not None
        self.answer_s = self._gate.now() - self.sent_at


class _WaitingRequest:
    """A request that waits at the gate."""

    __slots__ = ("is_due", "passage", "units")

    def __init__(self, passage: RequestInFlight, units: int) -> None:
        self.passage = passage
        self.units = units
        self.is_due: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Gate:
    """The window of one API, as it is seen from there."""

    def __init__(
        self, limit: int | None, window_s: float, *, spread_s: float, now: Callable[[], float]
    ) -> None:
        self.limit = limit
        self.window_s = window_s
        self.spread_s = spread_s
        self.now = now
        self._latest: deque[RequestInFlight] = deque(maxlen=limit)
        #: In order of arrival; bounded by the leases there are.
        self._waiting: deque[_WaitingRequest] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Gate: {len(self._latest)} of {self.limit} in {self.window_s:g} s>"

    async def passage(self, units: int = 1) -> RequestInFlight:
        """Wait until a request that counts as `units` calls may leave; in order of arrival."""
        passage = RequestInFlight(self)
        if self.limit is None:
            return passage
        turn = _WaitingRequest(passage, units)
        self._waiting.append(turn)
        self._serve()
        try:
            await turn.is_due
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            passage.sent()  # What is counted already must not hold up the others.
            self._serve()
            raise
        return passage

    def reconfigure(self, limit: int | None, window_s: float, *, spread_s: float) -> None:
        """The API has another limit now."""
        self.limit, self.window_s, self.spread_s = limit, window_s, spread_s
        self._latest = deque(self._latest if limit is not None else (), maxlen=limit)
        self._serve()

    def num_recent(self) -> int:
        """Requests that count in the window now, those on their way included."""
        begins = self.now() - self.window_s
        return sum(one.sent_at is None or one.sent_at > begins for one in self._latest)

    def has_room(self) -> bool:
        """Could a request leave now?"""
        opens_at = self._opens_at()
        return opens_at is not None and opens_at <= self.now()

    def on_sent(self) -> None:
        """For passages: one has left. Requests that wait may have waited for that."""
        if self._waiting and self._timer is None:
            self._serve()

    def _serve(self) -> None:
        """Let all go whose time has come, at once: a burst must not wait for the loop to turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            opens_at = self._opens_at()
            if opens_at is None:
                return
            if opens_at > self.now():
                self._serve_later(opens_at)
                return
            turn = self._waiting[0]
            if self.limit is not None:
                self._latest.append(turn.passage)
            turn.units -= 1
            if not turn.units:
                self._waiting.popleft()
                if not turn.is_due.done():
                    turn.is_due.set_result(None)

    def _serve_later(self, opens_at: float) -> None:
        # By the end of the bare window an answer may have come and made it earlier.
        bare_at = opens_at - self._late_s(self._latest[0])
        wakes_at = bare_at if self.now() < bare_at else opens_at
        delay_s = max(A_MOMENT_S, wakes_at - self.now())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._serve)

    def _opens_at(self) -> float | None:
        """When the next request may leave; `None` while that depends on one not sent yet."""
        if self.limit is None or len(self._latest) < self.limit:
            return 0.0
        first = self._latest[0]
        if first.sent_at is None:
            return None
        return first.sent_at + self._late_s(first) + self.window_s

    def _late_s(self, passage: RequestInFlight) -> float:
        """How long a request may have taken to arrive."""
        return self.spread_s if passage.answer_s is None else min(self.spread_s, passage.answer_s)


Window = tuple[int, float, float]
"""Limit, length and spread."""


class JointPassage:
    """One request on its way, as every window of its API sees it."""

    __slots__ = ("_passages",)

    def __init__(self, passages: list[RequestInFlight]) -> None:
        self._passages = passages

    def sent(self) -> None:
        """See `RequestInFlight.sent`."""
        for one in self._passages:
            one.sent()

    def answered(self) -> None:
        """See `RequestInFlight.answered`."""
        for one in self._passages:
            one.answered()


class Gates:
    """All windows of one API. A request passes the longest first: there it may have to wait long,
    and meanwhile it counts in no shorter one."""

    def __init__(self, windows: list[Window], *, now: Callable[[], float]) -> None:
        self._now = now
        self._gates: list[Gate] = []
        self.reconfigure(windows)

    def __repr__(self) -> str:
        return f"<Gates: {', '.join(map(repr, self._gates)) or 'no limit'}>"

    @property
    def first(self) -> Gate | None:
        """That of the limit which was named first, if there is any."""
        return self._gates[0] if self._gates else None

    def reconfigure(self, windows: list[Window]) -> None:
        """The API has these windows now; each goes on with what is in the one before it."""
        gates = []
        for number, (limit, window_s, spread_s) in enumerate(windows):
            if number < len(self._gates):
                gate = self._gates[number]
                gate.reconfigure(limit, window_s, spread_s=spread_s)
            else:
                gate = Gate(limit, window_s, spread_s=spread_s, now=self._now)
            gates.append(gate)
        for gone in self._gates[len(gates) :]:
            gone.reconfigure(None, gone.window_s, spread_s=gone.spread_s)
        self._gates = gates

    def has_room(self) -> bool:
        """Could a request leave now?"""
        return all(gate.has_room() for gate in self._gates)

    async def passage(self, units: int = 1) -> JointPassage:
        """Wait until a request that counts as `units` calls may leave."""
        passages: list[RequestInFlight] = []
        try:
            for gate in sorted(self._gates, key=lambda gate: -gate.window_s):
                passages.append(await gate.passage(units))
        except asyncio.CancelledError:
            JointPassage(passages).sent()  # What is counted already must not hold up the others.
            raise
        return JointPassage(passages)
