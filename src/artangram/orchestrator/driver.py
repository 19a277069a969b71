"""Feeds the scheduler, writes the journal, and hands on what was decided.

- Events of one instant are decided together: ends first, then what callers want, then the clock.
  The simulator keeps the same order, so both drivers see the same decisions.
- Decisions go to the `Executor` at once and in order; what becomes of them comes back as events,
  through `post`. Callers get an *answer* only when the journal has it. What a killed orchestrator
  started without an entry in its journal is taken up or stopped by the next one: see `executor`.
- Two things wait for the journal: the start of an action that must not be started twice or is the
  first of its trajectory, and the end of a closed trajectory's files.
- After one failed write the driver decides nothing more.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from artangram.core.ids import NodeId, TrajectoryId
from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.decisions import Close, Release, Resize, Start, Stop, WakeAt
from artangram.core.scheduling.events import ClockTicked, Event, Finished
from artangram.core.scheduling.lease import Cores
from artangram.observe.journal import Entry, Journal, JournalError, KeptRecord, Settled
from artangram.orchestrator.live import LiveAction, LiveTrajectory
from artangram.orchestrator.records import ActionResult, Overloaded, Submission, encode
from artangram.orchestrator.recovery import Restored
from artangram.orchestrator.snapshots import Snapshots

COMPACT_EVERY = 10_000
"""Entries between two snapshots: a restart replays about as many, in about a second."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Everything that waits in the orchestrator waits here, so tests can run on virtual time."""

    def now(self) -> float: ...

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer: ...

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back when all that happens at this instant was told."""
        ...

    def now_or_soon(self, callback: Callable[[], None]) -> None:
        """As `soon`; at once on a clock on which no two things end at the same instant."""
        ...


class WallClock:
    """Unix time when it was made, and the event loop's steady clock from there.

    It begins at `not_before` if the machine's clock was set back behind that: an
    orchestrator that goes on from a journal would otherwise stand still until the clock is there.
    """

    def __init__(self, *, not_before: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = max(time.time(), not_before) - self._loop.time()

    def now(self) -> float:
        return self._loop.time() + self._offset

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_at(at - self._offset, callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def now_or_soon(self, callback: Callable[[], None]) -> None:
        callback()


class Executor(Protocol):
    """Carries decisions out. Every start is followed by one `Finished`, or its node is lost."""

    def start(self, live: LiveAction) -> None:
        """Make its lease real."""
        ...

    def resize(self, live: LiveAction, cores: Cores, pace: float) -> None: ...

    def stop(self, live: LiveAction) -> None: ...

    def drop(self, live: LiveAction) -> None:
        """It was reported: end runs of it that an earlier process left behind."""
        ...

    def close(self, trajectory: LiveTrajectory) -> None:
        """Remove its sandbox, then tell the scheduler and the ledger that it is gone."""
        ...

    def release(self, node: NodeId) -> None:
        """End the agent of a drained node, which is empty."""
        ...


class Callers(Protocol):
    """Hears what concerns callers that wait for answers."""

    def deliver(self, result: ActionResult) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def close(self, trajectory: TrajectoryId) -> object: ...


class Driver:
    """Runs one scheduler in real time."""

    def __init__(
        self,
        life: Restored,
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
        #: Ids of what the journal keeps as long as it lives.
        self.lasting: set[str] = set()
        self._snapshots = Snapshots(journal, life.scheduler, life.ledger)
        self._last_at = life.last_at
        self._clock = clock
        self._executor = executor
        self._callers = callers
        self._compact_every = compact_every
        #: Bounded by `Bounds.max_queued` and by what runs: each of them has one end.
        self._inbox: list[Event] = []
        self._kept: list[KeptRecord] = []
        #: Called when the journal has what was posted with them.
        self._thens: list[Callable[[], None]] = []
        self._thens_now: list[Callable[[], None]] = []
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
        event: Event | None,
        *,
        kept: KeptRecord | None = None,
        then: Callable[[], None] | None = None,
        at_once: bool = False,
    ) -> None:
        """`event` happened, if one is given; `then` is called when the journal has it.

        `kept` is written beside it; without an event it lasts as long as the journal. `at_once`
        decides before this returns: nothing else is about to happen at this instant.
        """
        if event is not None:
            self._inbox.append(event)
        if kept is not None:
            self._kept.append(kept)
            if event is None:
                self.lasting.add(kept.id)
        if then is not None:
            self._thens.append(then)
        if self._is_deciding_soon:
            return
        self._is_deciding_soon = True
        if at_once and not self._is_deciding:
            self._clock.now_or_soon(self._decide)
        else:
            self._clock.soon(self._decide)

    def keeps(self, submission: Submission) -> bool:
        """Could a caller ask for this action again, in this process or the next?"""
        return self.journal.is_lasting or submission.key is not None

    def check_room(self) -> None:
        """Raises `Overloaded` if the journal has no room for new actions."""
        if not self.journal.takes_more:
            raise Overloaded(self.journal.warning)

    @property
    def is_closed(self) -> bool:
        return self._is_broken

    def close(self) -> None:
        """Decide nothing more."""
        self._is_broken = True
        self._snapshots.close()
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
        # Before decisions are carried out: what is posted meanwhile belongs to the next instant.
        self._thens_now, self._thens = self._thens, []
        if len(events) > 1:
            events.sort(key=_turn)
        decisions = self.scheduler.handle_all(events, now)
        changes = self.ledger.apply(events, decisions, at=now)
        # Before the writing, so that no start waits for it.
        for decision in decisions:
            match decision:
                case Start(lease):
                    self._carry_out(decision, self.ledger.actions[lease.action_id])
                case Resize(action_id) | Stop(action_id):
                    self._carry_out(decision, self.ledger.actions[action_id])
                case WakeAt(at):
                    self.wake_at(at)
                case Close(name):
                    self._callers.close(name)
                case Release(_, node):
                    self._thens_now.append(partial(self._executor.release, node))
        for trajectory in changes.left:
            # After the writing: killed in between, the next process has it open, with its files.
            self._thens_now.append(partial(self._executor.close, trajectory))
        entry = Entry(at=now, events=tuple(events), decisions=tuple(decisions))
        self.ledger.recent.append(entry)
        self._write(entry, changes.ended)

    def _carry_out(self, decision: Start | Resize | Stop, live: LiveAction) -> None:
        waits = isinstance(decision, Start) and self.journal.is_lasting and live.starts_once
        if waits and live.held is None:
            live.held = [decision]
            self._thens_now.append(partial(live.release, self._executor))
        else:
            live.perform(decision, self._executor)

    def _write(self, entry: Entry, ended: list[tuple[LiveAction, ActionRecord]]) -> None:
        kept, self._kept = self._kept, []
        results: list[tuple[LiveAction, ActionResult]] = []
        settled: list[Settled] = []
        for live, record in ended:
            if live.found:
                self._executor.drop(live)
            result = live.result(record)
            results.append((live, result))
            if self.keeps(live.submission):
                name = f"action:{record.action_id}"
                settled.append(Settled(id=name, at=entry.at, body=encode(result)))
        then = partial(self._on_written, self._thens_now, results)
        seq = self.journal.append(entry, kept=kept, settled=settled, then=then)
        if seq % self._compact_every == 0:
            self.compact(entry.at)

    def compact(self, now: float, *, owner: bytes | None = None) -> None:
        """Replace the entries by the state they led to; for another owner, if one is named."""
        self._snapshots.take(now, lasting=self.lasting, owner=owner)

    def _on_written(
        self,
        thens: list[Callable[[], None]],
        results: list[tuple[LiveAction, ActionResult]],
        error: JournalError | None,
    ) -> None:
        if self._is_broken:
            return  # Its callers were told so.
        if error is not None:
            self._break(error)
            return
        try:
            for then in thens:
                then()
            for live, result in results:
                self.ledger.delivered(live)
                live.settle(result)
                self._callers.deliver(result)
        except Exception as defect:
            self._break(defect)
            raise

    def _break(self, error: Exception) -> None:
        """A defect of ours counts, too: callers would wait for ever if they were not told."""
        self.close()
        self._callers.fail(error)


def _turn(event: Event) -> int:
    """Ends free what callers wait for; the clock only matters when nothing else happened."""
    if isinstance(event, Finished):
        return 0
    return 2 if isinstance(event, ClockTicked) else 1
