"""Which action held which cores and devices when, from the latest instants of a cluster.

Bounded: the last `SPAN_S` seconds, at most `MOST_BARS` bars on at most `MOST_LANES` lanes.
"""

from collections.abc import Iterable

from msgspec import Struct

from artangram.core.scheduling.decisions import Report, Resize, Start
from artangram.core.scheduling.events import Finished, NodeLost, Submitted
from artangram.core.scheduling.lease import Allocation, Cores, CoreShare, Devices
from artangram.observe.journal import Entry
from artangram.orchestrator.live import LiveAction

SPAN_S = 60.0
MOST_BARS = 3000
MOST_LANES = 64


class Bar(Struct, frozen=True, kw_only=True):
    """An action on one core or device for a while."""

    lane: str
    """`node/core 3` or `node/device 0`."""
    begin: float
    end: float | None
    """`None` while it goes on."""
    action: str
    kind: str
    job: str
    ended_by: str = ""
    """How it ended: an outcome, `resized` or `preempted`; empty while it goes on."""


class _Open(Struct, kw_only=True):
    since: float
    lanes: tuple[str, ...]


def timeline(
    entries: Iterable[Entry], alive: Iterable[LiveAction], *, now: float
) -> tuple[Bar, ...]:
    """The bars of the last `SPAN_S` seconds, the latest first where there are too many."""
    drawing = _Drawing(now - SPAN_S)
    for entry in entries:
        for event in entry.events:
            if isinstance(event, Submitted):
                drawing.names[event.action.id] = (event.action.kind, event.action.job)
            elif isinstance(event, Finished):
                drawing.close(event.action_id, entry.at, event.outcome.value)
            elif isinstance(event, NodeLost):
                drawing.lose(event.node, entry.at)
        for decision in entry.decisions:
            match decision:
                case Start(lease):
                    drawing.open(lease.action_id, entry.at, _lanes(lease.allocations))
                case Resize(action_id, cores):
                    how = "resized" if cores.cores else "preempted"
                    drawing.close(action_id, entry.at, how)
                    drawing.open(action_id, entry.at, _lanes((cores,)))
                case Report(record):
                    drawing.close(record.action_id, entry.at, record.outcome.value)
    for live in alive:
        drawing.go_on(live)
    return drawing.bars()


class _Drawing:
    def __init__(self, begin: float) -> None:
        self.names: dict[str, tuple[str, str]] = {}
        self._begin = begin
        self._open: dict[str, _Open] = {}
        self._bars: list[Bar] = []

    def open(self, action: str, at: float, lanes: tuple[str, ...]) -> None:
        if lanes:
            self._open[action] = _Open(since=at, lanes=lanes)

    def close(self, action: str, at: float, how: str) -> None:
        held = self._open.pop(action, None)
        if held is not None and at >= self._begin:
            self._draw(action, held, at, how)

    def lose(self, node: str, at: float) -> None:
        for action, held in list(self._open.items()):
            if held.lanes[0].partition("/")[0] == node:
                self.close(action, at, "lost")

    def go_on(self, live: LiveAction) -> None:
        """It runs now; its start may be longer ago than anything that is remembered."""
        if live.lease is None:
            return
        self.names[live.action.id] = (live.action.kind, live.action.job)
        if live.action.id not in self._open and live.units:
            self.open(live.action.id, live.started_at, _lanes(live.lease.allocations))

    def bars(self) -> tuple[Bar, ...]:
        for action, held in self._open.items():
            self._draw(action, held, None, "")
        newest = self._bars[::-1]
        lanes = sorted(dict.fromkeys(bar.lane for bar in newest), key=_order)[:MOST_LANES]
        shown = set(lanes)
        return tuple([bar for bar in newest if bar.lane in shown][:MOST_BARS])

    def _draw(self, action: str, held: _Open, end: float | None, how: str) -> None:
        kind, job = self.names.get(action, ("", ""))
        begin = max(held.since, self._begin)
        for lane in held.lanes:
            self._bars.append(
                Bar(
                    lane=lane,
                    begin=begin,
                    end=end,
                    action=action,
                    kind=kind,
                    job=job,
                    ended_by=how,
                )
            )


def _lanes(allocations: Iterable[Allocation]) -> tuple[str, ...]:
    found: list[str] = []
    for one in allocations:
        match one:
            case Cores(_, node, cores):
                found += [f"{node}/core {core}" for core in cores]
            case CoreShare(_, node):
                found.append(f"{node}/shared")
            case Devices(_, node, first, degree):
                found += [f"{node}/device {n}" for n in range(first, first + degree)]
    return tuple(found)


def _order(lane: str) -> tuple[str, int, str]:
    node, _, unit = lane.partition("/")
    number = unit.rpartition(" ")[2]
    return node, int(number) if number.isdecimal() else 0, unit
