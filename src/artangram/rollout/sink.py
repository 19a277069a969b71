"""Complete groups wait here until a batch takes them.

- A batch has whole groups, by the task mix, none of them stale at the version that is current
  when the batch is handed over: forming it and handing it over are one step of the caller.
- Stale groups are evicted before a batch is formed.
- The trainer waits for a whole batch, or, if it says how few are enough, until waiting has cost
  as much as the missing part of a step (`admission.patience_s`). What a task did not deliver it
  owes to the next batch.
- When the rollout itself fails or closes, the trainer hears of it instead of waiting for ever.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.rollout.admission import AdmissionLimits, Mix, Pace, TrainerState, patience_s
from artangram.core.rollout.trajectory import Batch, Group
from artangram.core.rollout.verdict import Dropped, DropReason, judge
from artangram.core.rollout.weights import Order
from artangram.rollout.source import Issue
from artangram.rollout.updates import Updates

_INSTANT_S = 1e-6
"""Timers may fire this much early."""


class CompleteGroup(Struct, frozen=True):
    """A complete group and the problem it accounts for."""

    group: Group
    issue: Issue


class SinkListener:
    """Told of what happens in a sink."""

    def on_ask(self) -> None:
        """The trainer waits for a batch."""

    def on_delivery(self) -> None:
        """A batch was handed over."""

    def on_evicted(self, ready: CompleteGroup, reason: DropReason) -> None:
        """A complete group will not be part of any batch."""


class Sink:
    """See the module."""

    def __init__(self, updates: Updates, mix: Mix, pace: Pace, *, limits: AdmissionLimits) -> None:
        self._updates = updates
        self._mix = mix
        self._pace = pace
        self._limits = limits
        self.listener = SinkListener()
        self._ready: dict[str, list[CompleteGroup]] = {}
        self._changed = asyncio.Event()
        self._asked = 0
        self._is_asked = False
        self._taken_at: float | None = None
        self._taken_version: int | None = None
        self._delivered: dict[str, Issue] = {}
        self._failed: Exception | None = None

    def __repr__(self) -> str:
        ready = {task: len(groups) for task, groups in self._ready.items()}
        return f"<Sink: {ready} ready, {'asked for' if self._is_asked else 'last'} {self._asked}>"

    @property
    def trainer(self) -> TrainerState:
        """What admission should know of the trainer."""
        is_busy = not self._is_asked and self._taken_version == self._updates.current
        return TrainerState(batch_groups=self._asked, is_busy=is_busy)

    @property
    def ready(self) -> tuple[CompleteGroup, ...]:
        return tuple(one for groups in self._ready.values() for one in groups)

    def num_ready(self, task: str) -> int:
        return len(self._ready.get(task, ()))

    def put(self, ready: CompleteGroup) -> None:
        self._ready.setdefault(ready.group.task, []).append(ready)
        self._wake()

    def fail(self, error: Exception) -> None:
        """Nothing more will come; a request for a batch raises the reason."""
        self._failed = self._failed or error
        self._wake()

    def evict_stale(self) -> None:
        """Let go of what can no longer be part of a batch."""
        for groups in self._ready.values():
            for one in [one for one in groups if self._is_stale(one.group)]:
                groups.remove(one)
                self.listener.on_evicted(one, DropReason.TOO_STALE)

    def evict_all(self) -> None:
        """More was made than needed."""
        for groups in self._ready.values():
            while groups:
                self.listener.on_evicted(groups.pop(), DropReason.SURPLUS)

    def evict_last(self, task: str) -> None:
        """Let go of the group of `task` that would be taken last."""
        last = self._first(task, self.num_ready(task))[-1]
        self._ready[task].remove(last)
        self.listener.on_evicted(last, DropReason.SURPLUS)

    async def batch(self, num_groups: int, *, min_groups: int | None = None) -> Batch:
        """The next batch. With `min_groups`, a partial one when waiting costs more."""
        self._check_ask(num_groups, min_groups)
        asked_at = self._ask(num_groups)
        try:
            while True:
                if self._failed is not None:
                    raise self._failed
                self.evict_stale()
                chosen = self._choice(num_groups)
                missing = num_groups - sum(len(groups) for groups in chosen.values())
                if not missing:
                    return self._deliver(chosen, asked=num_groups, asked_at=asked_at)
                leave_at = self._leave_at(missing, num_groups, min_groups, asked_at)
                if leave_at - _now() < _INSTANT_S:
                    return self._deliver(chosen, asked=num_groups, asked_at=asked_at)
                await self._change(leave_at)
        finally:
            self._is_asked = False

    def settle(self, batch: Batch) -> list[Issue]:
        """The batch was trained on: these problems are done."""
        if any(group.id not in self._delivered for group in batch.groups):
            problem = "was settled before, or is not of this rollout"
            raise BadInput("batch", problem, "settle each batch once")
        return [self._delivered.pop(group.id) for group in batch.groups]

    def _check_ask(self, num_groups: int, min_groups: int | None) -> None:
        if self._is_asked:
            raise BadInput("batch", "another batch is asked for", "ask for one at a time")
        least = num_groups if min_groups is None else min_groups
        if not 1 <= least <= num_groups:
            raise BadInput("min_groups", f"{min_groups} of {num_groups}", "say 1 to num_groups")
        self._limits.check_batch(num_groups)

    def _ask(self, num_groups: int) -> float:
        now = _now()
        if self._taken_at is not None:
            self._pace.on_step(now - self._taken_at)
            self._taken_at = None
        self._asked, self._is_asked = num_groups, True
        self.listener.on_ask()
        return now

    def _choice(self, num_groups: int) -> dict[str, list[CompleteGroup]]:
        """For every task, as many of its seats as it can fill."""
        seats = self._mix.seats(num_groups)
        return {task: self._first(task, count) for task, count in seats.items()}

    def _first(self, task: str, count: int) -> list[CompleteGroup]:
        newest_first = self._updates.staleness.order is Order.FRESHEST
        groups = self._ready.get(task, [])
        # Stable: among equally old ones, the first that was complete.
        return sorted(groups, key=lambda one: _age(one.group), reverse=newest_first)[:count]

    def _leave_at(
        self, missing: int, num_groups: int, min_groups: int | None, asked_at: float
    ) -> float:
        """When to go with what is there; infinite if that is not enough yet."""
        if min_groups is None or num_groups - missing < min_groups:
            return float("inf")
        return asked_at + patience_s(missing, asked=num_groups, busy_s=self._pace.busy_s)

    def _deliver(
        self, chosen: Mapping[str, list[CompleteGroup]], *, asked: int, asked_at: float
    ) -> Batch:
        taken = [one for groups in chosen.values() for one in groups]
        for one in taken:
            self._ready[one.group.task].remove(one)
            self._delivered[one.group.id] = one.issue
        self._mix.deliver(asked, {task: len(groups) for task, groups in chosen.items()})
        self._is_asked = False
        self._taken_at, self._taken_version = _now(), self._updates.current
        batch = Batch(
            groups=tuple(one.group for one in taken),
            version=self._updates.current,
            asked=asked,
            waited_s=_now() - asked_at,
        )
        self.listener.on_delivery()
        return batch

    def _is_stale(self, group: Group) -> bool:
        alpha = self._updates.staleness.max_staleness
        verdict = judge(group, current=self._updates.current, max_staleness=alpha)
        return isinstance(verdict, Dropped)

    async def _change(self, until: float) -> None:
        """Return when something came, or at `until`."""
        deadline = None if until == float("inf") else until
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _age(group: Group) -> int:
    """Versions grow, so the smallest is the oldest; what sampled nothing is newest."""
    oldest = group.oldest_version
    return 2**62 if oldest is None else oldest
