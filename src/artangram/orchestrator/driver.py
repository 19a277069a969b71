"""Feeds the scheduler, writes the journal, and hands on what was decided.

- Events of one instant are decided together: ends first, then what callers want, then the clock.
  The simulator keeps the same order, so both drivers see the same decisions.
- Decisions are carried out at once and in order, but for starts that must not be made twice; nobody
  is *answered* before the journal has them. What a killed orchestrator started without a word in
  its journal is gone on with by the next one, or stopped: see `executor`.
- What cannot be undone waits for the journal: the files of a trajectory go when its closing is
  written down.
- After one failed write nothing more is decided.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec import Struct

from artangram.core.ids import ActionId, NodeId
from artangram.core.scheduling.decisions import Release, Report, Resize, Start, Stop, WakeAt
from artangram.core.scheduling.events import ClockTicked, Event, Finished
from artangram.core.scheduling.records import ActionRecord
from artangram.core.scheduling.scheduler import Scheduler
from artangram.observe.journal import Entry, Journal, JournalError, KeptRecord, Settled
from artangram.orchestrator.clock import Clock, Timer
from artangram.orchestrator.ledger import Ledger, LiveAction, LiveTrajectory
from artangram.orchestrator.records import ActionResult, Submission, encode
from artangram.orchestrator.recovery import frozen

COMPACT_EVERY = 10_000
"""Entries between two snapshots: a restart replays at most so many, in about a second."""

RESULTS_KEPT_S = 86_400.0
"""How long an ended action answers to its key."""


class Executor(Protocol):
    """Who carries decisions out."""

    def perform(self, decision: Start | Resize | Stop) -> None: ...

    def release(self, node: NodeId) -> None: ...

    def result_of(self, live: LiveAction, record: ActionRecord) -> ActionResult: ...

    def let_go(self, trajectory: LiveTrajectory) -> None: ...


class Callers(Protocol):
    """Who waits for answers."""

    def deliver(self, result: ActionResult) -> None: ...

    def fail(self, error: Exception) -> None: ...


class RestoredLife(Struct, frozen=True, kw_only=True):
    """What a body goes on from."""

    scheduler: Scheduler
    ledger: Ledger
    last_at: float = 0.0
    is_anew: bool = False
    """Is it still to be written what it begins with?"""


class Driver:
    """One scheduler alive."""

    def __init__(
        self,
        life: RestoredLife,
        *,
        journal: Journal,
        clock: Clock,
        executor: Executor,
        callers: Callers,
        compact_every: int = COMPACT_EVERY,
    ) -> None:
        self.scheduler = life.scheduler
        self.ledger = life.ledger
        self.journal = journal
        #: What the journal keeps as long as it lives.
        self.lasting: set[str] = set()
        self._last_at = life.last_at
        self._clock = clock
        self._executor = executor
        self._callers = callers
        self._compact_every = compact_every
        #: Bounded by `Bounds.max_queued` and by what runs: each of them has one end.
        self._inbox: list[Event] = []
        self._kept: list[KeptRecord] = []
        self._thens: list[Callable[[], None]] = []
        #: Those of the instant that is being decided.
        self._thens_now: list[Callable[[], None]] = []
        #: Reported, and on their way to the journal.
        self._settling: set[ActionId] = set()
        self._is_deciding = False
        self._is_deciding_soon = False
        self._is_broken = False
        self._wake: Timer | None = None

    def now(self) -> float:
        """The time; after a restart never before the last entry."""
        now = self._clock.now()
        if now > self._last_at:
            self._last_at = now
        return self._last_at

    def post(
        self,
        event: Event,
        *,
        kept: KeptRecord | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """`event` happened; `then` is called when the journal has it."""
        self._inbox.append(event)
        if kept is not None:
            self._kept.append(kept)
        if then is not None:
            self._thens.append(then)
        self._decide_soon()

    def post_end(self, event: Finished, *, then: Callable[[], None] | None) -> None:
        """As `post`, for an end: whoever waits for it or for its lease does not wait a turn."""
        self._inbox.append(event)
        if then is not None:
            self._thens.append(then)
        if self._is_deciding:
            self._decide_soon()
        elif not self._is_deciding_soon:
            self._is_deciding_soon = True
            self._clock.now_or_soon(self._decide)

    def is_undelivered(self, action_id: ActionId) -> bool:
        """Will this action be delivered, sooner or later?"""
        return self.ledger.knows(action_id) or action_id in self._settling

    def keeps(self, submission: Submission) -> bool:
        """Could anybody ask for this action again, in this life or the next?"""
        return self.journal.is_lasting or submission.key is not None

    def note(
        self, kept: KeptRecord | None = None, *, then: Callable[[], None] | None = None
    ) -> None:
        """Nothing happened, but `kept` is to last, and `then` comes after all posted before."""
        if kept is not None:
            self.lasting.add(kept.id)
            self._kept.append(kept)
        if then is not None:
            self._thens.append(then)
        self._decide_soon()

    def once_written(self, then: Callable[[], None]) -> None:
        """About what is being decided: call `then` when the journal has it."""
        self._thens_now.append(then)

    @property
    def is_idle(self) -> bool:
        """Is nobody left whose action is to end, or to be delivered?"""
        return not (self.ledger.num_queued or self.ledger.num_running or self._settling)

    @property
    def is_closed(self) -> bool:
        return self._is_broken

    def close(self) -> None:
        """Nothing more is decided."""
        self._is_broken = True
        if self._wake is not None:
            self._wake.cancel()

    def wake_at(self, at: float) -> None:
        """Tick at `at`, and not at any time asked for before."""
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._clock.call_at(at, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        self.post(ClockTicked())

    def _decide_soon(self) -> None:
        if not self._is_deciding_soon:
            self._is_deciding_soon = True
            self._clock.soon(self._decide)

    def _decide(self) -> None:
        self._is_deciding_soon = False
        if self._is_broken:
            return
        self._is_deciding = True
        try:
            self._decide_now()
        except Exception as error:
            self._break(error)
            raise
        finally:
            self._is_deciding = False

    def _decide_now(self) -> None:
        now = self.now()
        events, self._inbox = self._inbox, []
        # Not after the decisions: what is told while they are carried out is of the next instant.
        self._thens_now, self._thens = self._thens, []
        if len(events) > 1:
            events.sort(key=_turn)
        decisions = self.scheduler.handle_all(events, now)
        changes = self.ledger.apply(events, decisions, at=now)
        # First, so that who starts does not wait for the writing. The result of a report goes to
        # the journal, and from there to its waiters.
        for decision in decisions:
            if isinstance(decision, WakeAt):
                self.wake_at(decision.at)
            elif isinstance(decision, Release):
                self.once_written(partial(self._executor.release, decision.node))
            elif not isinstance(decision, Report):
                self._executor.perform(decision)
        for trajectory in changes.left:
            # Not before: killed in between, the next life has it open, and needs its files.
            self.once_written(partial(self._executor.let_go, trajectory))
        entry = Entry(at=now, events=tuple(events), decisions=tuple(decisions))
        self._write(entry, changes.ended)

    def _write(self, entry: Entry, ended: list[tuple[LiveAction, ActionRecord]]) -> None:
        kept, self._kept = self._kept, []
        results: list[ActionResult] = []
        settled: list[Settled] = []
        for live, record in ended:
            result = self._executor.result_of(live, record)
            results.append(result)
            self._settling.add(record.action_id)
            if self.keeps(live.submission):
                name = f"action:{record.action_id}"
                settled.append(Settled(id=name, at=entry.at, body=encode(result)))
        then = partial(self._on_written, self._thens_now, results)
        seq = self.journal.append(entry, kept=kept, settled=settled, then=then)
        if seq % self._compact_every == 0:
            self.compact(entry.at)

    def compact(self, now: float, *, owner: bytes | None = None) -> None:
        """Write all there is in place of what led to it; for another owner, if one is named."""
        if not self.journal.is_lasting:
            return
        live = [f"action:{action_id}" for action_id in self.ledger.actions]
        live += [f"trajectory:{trajectory}" for trajectory in self.ledger.trajectories]
        self.journal.compact(
            frozen(self.scheduler, self.ledger),
            live=[*live, *self.lasting],
            settled_after=now - RESULTS_KEPT_S,
            owner=owner,
        )

    def _on_written(
        self,
        thens: list[Callable[[], None]],
        results: list[ActionResult],
        error: JournalError | None,
    ) -> None:
        if self._is_broken:
            return  # Who waited was told so.
        if error is not None:
            self._break(error)
            return
        try:
            for then in thens:
                then()
            for result in results:
                self._settling.discard(result.record.action_id)
                self._callers.deliver(result)
        except Exception as defect:
            self._break(defect)
            raise

    def _break(self, error: Exception) -> None:
        """Of a defect of ours, too: better to say so than to let everybody wait for ever."""
        self.close()
        self._callers.fail(error)


def _turn(event: Event) -> int:
    """Ends free what callers wait for; the clock only matters when nothing else happened."""
    if isinstance(event, Finished):
        return 0
    return 2 if isinstance(event, ClockTicked) else 1
