"""A journal as spans of OpenTelemetry: a trajectory is a trace, every action of it a span.

Names and attributes follow the conventions for generative AI: a trajectory is `invoke_agent`, an
action `execute_tool`. Ids are made from ours, so that a journal that is exported twice gives the
same spans. A span is complete when it ends; what goes on is not exported yet.
"""

import hashlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.core.scheduling.decisions import Report
from artangram.core.scheduling.events import TrajectoryClosed, TrajectoryOpened
from artangram.observe.journal import Entry

FAULTS = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.EXPIRED, Outcome.REFUSED, Outcome.INFRA_FAILED)
"""Outcomes that make a span an error; cancelling an action does not."""

Attributes = dict[str, str | int | float]


class Span(Struct, frozen=True, kw_only=True):
    """Something that took time, with seconds since the epoch."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None = None
    begin: float
    end: float
    attributes: Attributes
    moments: tuple[tuple[str, float], ...] = ()
    """What happened during it, and when."""
    fault: str = ""
    """Why it is an error; empty if it is not one."""


class SpanMaker:
    """Follows a journal, entry by entry."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[TrajectoryOpened, float]] = {}
        self._tasks: dict[str, str] = {}

    def spans(self, entries: Iterable[Entry]) -> Iterator[Span]:
        """Those that ended in `entries`."""
        for entry in entries:
            for event in entry.events:
                if isinstance(event, TrajectoryOpened):
                    self._opened[event.trajectory] = (event, entry.at)
            for decision in entry.decisions:
                if isinstance(decision, Report):
                    yield self._action(decision.record)
            for event in entry.events:
                if isinstance(event, TrajectoryClosed) and event.trajectory in self._opened:
                    yield self._trajectory(event.trajectory, entry.at)

    def _action(self, record: ActionRecord) -> Span:
        # A call without a trajectory is a trace of its own.
        of = record.trajectory or record.action_id
        if record.trajectory in self._opened:
            self._tasks[record.trajectory] = record.task
        moments = [("started", record.started_at), ("program began", record.began_at)]
        return Span(
            name=f"execute_tool {record.kind}",
            trace_id=_number(of, 16),
            span_id=_number(record.action_id, 8),
            parent_id=None if record.trajectory is None else _number(record.trajectory, 8),
            begin=record.submitted_at,
            end=record.ended_at,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": record.kind,
                "gen_ai.tool.call.id": record.action_id,
                "gen_ai.conversation.id": of,
                "artangram.job": record.job,
                "artangram.task": record.task,
                "artangram.outcome": record.outcome.value,
                "artangram.wait_s": record.wait_s,
                "artangram.overhead_s": record.overhead_s,
                "artangram.run_s": record.run_s,
                "artangram.units": record.units,
                "artangram.attempts": record.attempts,
            },
            moments=tuple((name, at) for name, at in moments if at is not None),
            fault=(record.reason or record.outcome.value) if record.outcome in FAULTS else "",
        )

    def _trajectory(self, trajectory: str, at: float) -> Span:
        opened, began_at = self._opened.pop(trajectory)
        task = self._tasks.pop(trajectory, "")
        return Span(
            name=f"invoke_agent {task}".rstrip(),
            trace_id=_number(trajectory, 16),
            span_id=_number(trajectory, 8),
            begin=began_at,
            end=at,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": task,
                "gen_ai.conversation.id": trajectory,
                "artangram.job": opened.job,
                "artangram.memory_mb": opened.memory_mb,
            },
        )


def _number(text: str, size: int) -> int:
    """An id of `size` bytes; never 0, which means none."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
