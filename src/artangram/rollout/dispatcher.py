"""Keep the right trajectories going.

- `core.admission` says what may start; everything here happens at once on some event: an end, an
  environment given back, a batch asked for or taken, a version announced or live.
- Every trajectory that starts ends once, and is told to the tally once.
- A group is completed by the first of its members that may train; the rest is surplus and really
  stopped. Members that failed or became stale are replaced, within a budget.
- Hedging: a member later than its task's quantile gets one rival, if there is room. The first wins.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct, structs

from artangram.core.durations import Durations
from artangram.core.errors import BadInput
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.admission import (
    AdmissionLimits,
    GroupDemand,
    Held,
    Mix,
    Open,
    Pace,
    Wait,
    WaitCause,
    demand,
    in_the_way,
    may_add,
    may_start,
    next_group,
)
from artangram.core.rollout.line import EnvironmentBound
from artangram.core.rollout.trajectory import TRAINABLE, Trajectory, TrajectoryStatus
from artangram.core.rollout.verdict import Accepted, Dropped, DropReason, judge, judge_trajectory
from artangram.rollout.defects import Defects
from artangram.rollout.members import OpenGroup
from artangram.rollout.runner import Assignment, Attempt, Runner
from artangram.rollout.sink import CompleteGroup, Sink, SinkListener
from artangram.rollout.source import Source
from artangram.rollout.tally import RolloutTally
from artangram.rollout.updates import Updates

logger = logging.getLogger(__name__)

CLEARLY = 1.1
"""Late by a hair is not late: where all take the same time, none is."""
LEAST_KNOWN, MOST_KNOWN = 16, 256
"""Trajectories of a task from which its tail is known, and those remembered."""


class Spares(Struct, frozen=True, kw_only=True):
    """What is started again, or twice."""

    hedge_quantile: float | None = None
    """Members later than this share of their task's get a rival; with `None`, none does."""
    most_hedges: int = 1
    """Per group."""
    most_reissues: int = 8
    """Members of one group that may be replaced before its problem is given back."""

    def __post_init__(self) -> None:
        if self.hedge_quantile is not None and not 0 < self.hedge_quantile < 1:
            problem = f"{self.hedge_quantile} is no quantile"
            raise BadInput("hedge_quantile", problem, "say between 0 and 1, as 0.95")


class Dispatcher(SinkListener):
    """See the module."""

    def __init__(
        self,
        source: Source,
        runner: Runner,
        sink: Sink,
        *,
        updates: Updates,
        limits: AdmissionLimits,
        mix: Mix,
        pace: Pace,
        tally: RolloutTally,
        job: JobId,
        spares: Spares,
        needs_signal: bool,
        life: str,
    ) -> None:
        self._source = source
        self._runner = runner
        self._sink = sink
        self._updates = updates
        self._limits = limits
        self._mix = mix
        self._pace = pace
        self._tally = tally
        self._job = job
        self._spares = spares
        self._needs_signal = needs_signal
        self._life = life
        self._groups: dict[str, OpenGroup] = {}
        self._attempts: dict[TrajectoryId, Attempt] = {}
        self._in_envs = 0
        self._bound: EnvironmentBound | None = None
        self._durations = defaultdict[str, Durations](
            lambda: Durations(least=LEAST_KNOWN, most=MOST_KNOWN)
        )
        self._told: set[str] = set()
        self._defects = Defects(sink.fail)
        self._is_closed = False
        self._is_pumping = False
        self.waits: Wait | None = None
        """Why nothing more starts."""

    def __repr__(self) -> str:
        why = f", waits: {self.waits.why}" if self.waits else ""
        return f"<Dispatcher: {len(self._attempts)} running in {len(self._groups)} groups{why}>"

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts.values())

    @property
    def groups(self) -> tuple[OpenGroup, ...]:
        return tuple(self._groups.values())

    def held(self) -> Held:
        groups = {task: self._sink.num_ready(task) for task in self._source.tasks}
        reserved = sum(groups.values()) * self._limits.group_size
        for group in self._groups.values():
            groups[group.task] += 1
            reserved += group.alive
        most = None if self._bound is None else self._bound.most
        return Held(in_envs=self._in_envs, reserved=reserved, groups=groups, most_in_envs=most)

    def pump(self) -> None:
        """Start all that may start now."""
        if self._is_closed or self._is_pumping:
            return
        self._is_pumping = True
        try:
            lag = self._updates.current - self._updates.live
            wanted = demand(self._limits, self._sink.trainer, self._mix, self._pace, lag=lag)
            while self._start_next(wanted):
                pass
        except Exception as error:  # noqa: BLE001 (no caller awaits us: the trainer must hear of it)
            self._sink.fail(error)
        finally:
            self._is_pumping = False

    def on_ask(self) -> None:
        self.pump()

    def on_delivery(self) -> None:
        if self._updates.staleness.max_staleness == 0:
            # The next batch is of the next version: nothing under way can be part of it.
            self._sink.evict_all()
            for group in list(self._groups.values()):
                self._lose(group, DropReason.SURPLUS)
        self.pump()

    def on_evicted(self, ready: CompleteGroup, reason: DropReason) -> None:
        self._source.give_back(ready.issue, reason)

    def on_update(self) -> None:
        """A version was announced or went live: shed what is stale, then start what may."""
        self._sink.evict_stale()
        for group in list(self._groups.values()):
            self._shed(group)
        self.pump()

    def on_line(self, wait_s: float, num_waiting: int) -> None:
        """A trajectory that is opened now would wait for `wait_s`; `num_waiting` of ours do."""
        self._bound = self._bound or EnvironmentBound(self._limits.environments)
        self._bound.on_line(wait_s=wait_s, num_waiting=num_waiting, in_envs=self._in_envs)
        self.pump()

    async def close(self) -> None:
        """Stop everything; return when it has ended."""
        self._is_closed = True
        for attempt in self.attempts:
            attempt.stop(TrajectoryStatus.SURPLUS, "the rollout closes")
        while self._attempts:
            await asyncio.wait({attempt.ended for attempt in self.attempts})
            await asyncio.sleep(0)  # The callbacks of those ends have their turn.
        await self._runner.strays.close()

    def _start_next(self, wanted: GroupDemand) -> bool:
        held = self.held()
        now = {"current": self._updates.current, "live": self._updates.live}
        lacking = next(self._lacking(), None)
        if lacking is not None:
            self.waits = may_start(self._limits, held, **now)
            if self.waits is None:
                self._start(lacking)
            return self.waits is None
        decision = next_group(self._limits, held, wanted, **now)
        if isinstance(decision, Open):
            self._open(decision.task)
            return True
        self.waits = decision
        return decision.why is WaitCause.BUFFER_FULL and self._make_room(held, wanted)

    def _make_room(self, held: Held, wanted: GroupDemand) -> bool:
        """The trainer waits for a task whose groups find no room: let one of another go."""
        if self._sink.trainer.is_busy:
            return False
        ready = {task: self._sink.num_ready(task) for task in self._source.tasks}
        task = in_the_way(held, ready, wanted.next_batch)
        if task is not None:
            self._sink.evict_last(task)
        return task is not None

    def _lacking(self) -> Iterator[OpenGroup]:
        """Groups with members to start, the first opened first."""
        return (group for group in self._groups.values() if group.unstarted)

    def _open(self, task: str) -> None:
        issue = self._source.next(task)
        group = OpenGroup(
            issue,
            job=self._job,
            size=self._limits.group_size,
            launch=self._limits.launch_size,
            name=f"{self._life}{issue.group_id}",
        )
        self._groups[group.id] = group

    def _start(self, group: OpenGroup) -> None:
        group.unstarted -= 1
        ticket = Assignment(
            id=group.next_id(),
            job=self._job,
            group=group.id,
            task=self._source.tasks[group.task],
            problem=group.issue.problem,
        )
        self._in_envs += 1
        self._tally.on_start(group.task)
        attempt = self._runner.start(ticket, on_env_free=self._on_env_free)
        group.running[ticket.id] = attempt
        self._attempts[ticket.id] = attempt
        attempt.ended.add_done_callback(lambda _: self._on_end(group, attempt))
        self._watch(group, attempt)

    def _watch(self, group: OpenGroup, attempt: Attempt) -> None:
        """Look again when `attempt` is late by its task's standards."""
        share = self._spares.hedge_quantile
        late_s = None if share is None else self._durations[group.task].quantile(share)
        if late_s is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(CLEARLY * late_s, self._on_late, group, attempt)
            attempt.ended.add_done_callback(lambda _: timer.cancel())

    def _on_late(self, group: OpenGroup, attempt: Attempt) -> None:
        is_waited_for = group.is_open and attempt.ticket.id in group.running
        has_hedges = group.hedges < self._spares.most_hedges
        if is_waited_for and has_hedges and may_add(self._limits, self.held()):
            group.hedges += 1
            group.unstarted += 1
            self._tally.on_hedge(group.task)
            self.pump()

    def _on_env_free(self) -> None:
        self._in_envs -= 1
        self.pump()

    def _on_end(self, group: OpenGroup, attempt: Attempt) -> None:
        del self._attempts[attempt.ticket.id]
        trajectory = attempt.ended.result()
        if not group.is_open and trajectory.status in TRAINABLE:
            # It ended by itself in the very moment in which its group no longer needed it.
            trajectory = structs.replace(trajectory, status=TrajectoryStatus.SURPLUS, reward=None)
        took_s = asyncio.get_running_loop().time() - attempt.started_at
        self._tally.on_end(trajectory, took_s)
        self._defects.on_end(trajectory, attempt.error)
        del group.running[trajectory.id]
        # After the end of the rollout its problems stay outstanding, for the next life.
        if group.is_open and not self._is_closed:
            self._on_member(group, trajectory, took_s)
        self.pump()

    def _on_member(self, group: OpenGroup, trajectory: Trajectory, took_s: float) -> None:
        alpha = self._limits.max_staleness
        current = self._updates.current
        match judge_trajectory(trajectory, current=current, max_staleness=alpha):
            case Accepted():
                self._pace.on_trajectory(group.task, took_s)
                self._durations[group.task].add(took_s)
                group.finished.append(trajectory)
                if group.is_complete:
                    self._complete(group)
            case Dropped(reason):
                self._replace(group, reason)

    def _complete(self, group: OpenGroup) -> None:
        self._close_group(group, "its group is complete")
        record = group.record()
        alpha = self._limits.max_staleness
        verdict = judge(
            record,
            current=self._updates.current,
            max_staleness=alpha,
            needs_signal=self._needs_signal,
        )
        if isinstance(verdict, Accepted):
            self._sink.put(CompleteGroup(record, group.issue))
        else:
            self._source.drop(group.issue, verdict.reason)

    def _replace(self, group: OpenGroup, reason: DropReason) -> None:
        """Members are gone: start others, or let the group go."""
        if group.reissues + group.lacks > self._spares.most_reissues:
            self._lose(group, reason)
            return
        for _ in range(group.lacks):
            group.reissues += 1
            group.unstarted += 1
            self._tally.on_reissue(group.task)

    def _lose(self, group: OpenGroup, reason: DropReason) -> None:
        if reason is DropReason.INFRA:
            self._tell(group)
        self._close_group(group, f"its group was given up: {reason}")
        self._source.give_back(group.issue, reason)

    def _tell(self, group: OpenGroup) -> None:
        """Log it: a trainer waits in vain for a batch of which every attempt fails."""
        # Loud once for each task.
        level = logging.INFO if group.task in self._told else logging.WARNING
        self._told.add(group.task)
        logger.log(level, "%s is given up: %s", group.id, self._tally.last_failure)

    def _close_group(self, group: OpenGroup, why: str) -> None:
        group.is_open = False
        group.unstarted = 0
        del self._groups[group.id]
        for attempt in group.running.values():
            attempt.stop(TrajectoryStatus.SURPLUS, why)

    def _shed(self, group: OpenGroup) -> None:
        """Stop the members that became stale, and let go of finished ones that did."""
        stale = [t for t in group.finished if self._updates.is_stale(t.oldest_version)]
        if stale:
            self._tally.evicted += len(stale)
            group.finished = [t for t in group.finished if t not in stale]
            self._replace(group, DropReason.TOO_STALE)
        if self._updates.staleness.sheds_early:
            for attempt in group.running.values():
                if self._updates.is_stale(attempt.oldest_version):
                    attempt.stop(
                        TrajectoryStatus.STALE, f"version {self._updates.current} was announced"
                    )
