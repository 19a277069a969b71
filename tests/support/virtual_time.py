"""A clock, and actions that run for as long as they are told: the smallest driver there is."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from artangram.core.scheduling.action import Action, ActionRecord
from artangram.core.scheduling.decisions import Decision, Report, Start, WakeAt
from artangram.core.scheduling.events import ClockTicked, Event, Finished, Submitted
from artangram.core.scheduling.scheduler import Scheduler


def played(
    scheduler: Scheduler,
    arrivals: Iterable[tuple[float, Action]],
    *,
    run_s: dict[str, float],
    until: float = float("inf"),
    after: Callable[[float], None] = lambda now: None,
) -> list[ActionRecord]:
    """The records of the actions that ended before `until`, in order of their ends.

    `after` is called after every event.
    """
    order = count()
    events: list[tuple[float, int, Event]] = [
        (at, next(order), Submitted(action)) for at, action in arrivals
    ]
    heapify(events)
    records: list[ActionRecord] = []
    wake_at: float | None = None

    def carry_out(decision: Decision, now: float) -> float | None:
        match decision:
            case Start(lease):
                end_at = now + run_s[str(lease.action_id)]
                heappush(events, (end_at, next(order), Finished(lease.action_id)))
            case Report(record):
                records.append(record)
            case WakeAt(at):
                return at
        return wake_at

    while events or wake_at is not None:
        is_tick = wake_at is not None and (not events or wake_at < events[0][0])
        if is_tick:
            now, event, wake_at = wake_at, ClockTicked(), None
        else:
            now, _, event = heappop(events)
        if now >= until:
            break
        for decision in scheduler.handle(event, now):
            wake_at = carry_out(decision, now)
        after(now)
    return records
