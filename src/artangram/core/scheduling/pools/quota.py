"""The books of an outside API: how many calls are under way and what fell into its windows.

In any interval of `window_s` at most `limit` calls start, for every window that counts calls, and
at most `concurrency` are under way at any time, whatever the order of calls, ends and refusals.

Other windows count tokens. When a call starts it takes what its caller states, or what calls of its
kind use; when it ends that is settled with what it used: less is given back, more is charged then.
"""

from collections import OrderedDict

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import CallWindow, PoolSpec, QuotaSpec
from artangram.core.scheduling.lease import Calls
from artangram.core.scheduling.pools.slots import Slots
from artangram.core.scheduling.speedup import MOST_UNITS

FIRST_TOKENS = 1000
"""What a call is expected to use before any has ended."""
NEWEST = 0.2
"""How much the latest call of a kind counts in what the next is expected to use."""
MOST_KINDS = 1024
"""Kinds told apart by what they use; beyond, all are forgotten."""


class _Window:
    """One sliding window."""

    __slots__ = ("limit", "recent", "unit", "used", "window_s")

    def __init__(self, spec: CallWindow) -> None:
        self.limit = spec.limit
        self.window_s = spec.window_s
        self.unit = spec.unit
        #: What started at each time, the earliest first.
        self.recent: OrderedDict[float, int] = OrderedDict()
        self.used = 0

    def amount(self, units: int, tokens: int) -> int:
        """What a start of `units` calls with `tokens` counts here."""
        if self.unit == "calls":
            return units
        # More than a window has waits for an empty one.
        return min(tokens, self.limit)

    def take(self, amount: int, now: float) -> None:
        self.recent[now] = self.recent.get(now, 0) + amount
        self.used += amount

    def settle(self, taken: int, used: int, *, started_at: float, now: float) -> None:
        """A call that took `taken` tokens has used `used`."""
        if used > taken:
            self.take(used - taken, now)
        elif started_at in self.recent:
            self.recent[started_at] -= taken - used
            self.used -= taken - used

    def fits_at(self, amount: int) -> float | None:
        """When it lets `amount` start; `None` if it does now."""
        surplus = self.used + amount - self.limit
        at: float | None = None
        for started, some in self.recent.items():
            if surplus <= 0:
                break
            surplus -= some
            at = started + self.window_s
        return at

    def forget(self, now: float) -> None:
        recent = self.recent
        # Computed as `fits_at` computes it, so that waking then finds the call forgotten.
        while recent and next(iter(recent)) + self.window_s <= now:
            self.used -= recent.popitem(last=False)[1]


def _windows(spec: QuotaSpec) -> list[CallWindow]:
    first = [] if spec.limit is None else [CallWindow(limit=spec.limit, window_s=spec.window_s)]
    return [*first, *spec.windows]


class QuotaPool:
    """A concurrency limit and sliding windows, any of which may be absent."""

    __slots__ = (
        "_expected",
        "_windows",
        "closed_until",
        "concurrency",
        "counts_tokens",
        "overhead_s",
        "resource",
        "under_way",
    )

    def __init__(self, resource: Resource, spec: QuotaSpec) -> None:
        self.resource = resource
        self.overhead_s = spec.overhead_s
        self.concurrency = spec.concurrency
        self.under_way = 0
        self.closed_until = 0.0
        self._windows = [_Window(one) for one in _windows(spec)]
        self.counts_tokens = any(one.unit == "tokens" for one in self._windows)
        #: Tokens of calls of each kind.
        self._expected: dict[str, float] = {}

    def __repr__(self) -> str:
        recent = " and ".join(f"{one.used} recent" for one in self._windows) or "no window"
        return f"<QuotaPool {self.resource}: {self.under_way} under way, {recent}>"

    def fits(self, units: int, now: float, tokens: int = 0) -> bool:
        """May `units` calls that use `tokens` start now?"""
        return units <= self.available(now) and all(
            one.used + one.amount(units, tokens) <= one.limit
            for one in self._windows
            if one.unit == "tokens"
        )

    def available(self, now: float) -> int:
        """How many calls may start now; `MOST_UNITS` when nothing limits them."""
        self._forget(now)
        if now < self.closed_until:
            return 0
        counted = (one.limit - one.used for one in self._windows if one.unit == "calls")
        rooms = [MOST_UNITS, *counted]
        if self.concurrency is not None:
            rooms.append(self.concurrency - self.under_way)
        return max(0, min(rooms))  # Below 0 it is after a limit was lowered.

    def tokens_left(self, now: float) -> int:
        """How many tokens its windows have left; `MOST_UNITS` when none counts them."""
        self._forget(now)
        rooms = (one.limit - one.used for one in self._windows if one.unit == "tokens")
        return max(0, min(rooms, default=MOST_UNITS))

    def tokens_of(self, kind: str, stated: int | None) -> int:
        """What a call takes when it starts."""
        if not self.counts_tokens:
            return 0
        if stated is not None:
            return stated
        return max(1, round(self._expected.get(kind, FIRST_TOKENS)))

    def slots(self) -> Slots | None:
        """Calls that may be under way at once, if there is a number of them."""
        if self.concurrency is None:
            return None
        return Slots(max(0, self.concurrency - self.under_way), self.concurrency)

    def fits_at(self, units: int, now: float, tokens: int = 0) -> float | None:
        """When the windows alone let such calls start; `None` if it is not the windows."""
        self._forget(now)
        if now < self.closed_until:
            return self.closed_until
        times = (one.fits_at(one.amount(units, tokens)) for one in self._windows)
        return max((at for at in times if at is not None), default=None)

    def take(self, units: int, now: float, tokens: int = 0) -> Calls:
        """`units` calls start now, and are taken to use `tokens`."""
        self.under_way += units
        for one in self._windows:
            one.take(units if one.unit == "calls" else tokens, now)
        return Calls(self.resource, units, tokens)

    def settle(self, calls: Calls, used: int, *, started_at: float, now: float) -> None:
        """`calls`, which started then, have used this many tokens."""
        for one in self._windows:
            if one.unit == "tokens":
                one.settle(calls.tokens, used, started_at=started_at, now=now)

    def learn(self, kind: str, used: int) -> None:
        """A call of this kind used this many tokens."""
        if len(self._expected) >= MOST_KINDS and kind not in self._expected:
            self._expected.clear()
        before = self._expected.get(kind, float(used))
        self._expected[kind] = before + NEWEST * (used - before)

    def give_back(self, units: int, now: float) -> None:
        """`units` calls ended. They stay in the windows."""
        self.under_way -= units
        assert self.under_way >= 0, f"{self} got back more than it gave"

    def close(self, until: float) -> None:
        """The API takes no call before `until`."""
        self.closed_until = max(self.closed_until, until)

    def reconfigure(self, spec: PoolSpec, now: float) -> None:
        """The API allows this from now on.

        A window goes on with what is in the one that had its place, if both count the same. In
        another one, calls under way count as if they started now.
        """
        assert isinstance(spec, QuotaSpec), f"{self} is a quota"
        self._forget(now)
        before, self.concurrency = self._windows, spec.concurrency
        self._windows = [_Window(one) for one in _windows(spec)]
        self.counts_tokens = any(one.unit == "tokens" for one in self._windows)
        for number, window in enumerate(self._windows):
            if number < len(before) and before[number].unit == window.unit:
                window.recent, window.used = before[number].recent, before[number].used
            elif self.under_way and window.unit == "calls":
                window.take(self.under_way, now)

    def _forget(self, now: float) -> None:
        for one in self._windows:
            one.forget(now)
