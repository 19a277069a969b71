"""A journal as a trace that Perfetto and `chrome://tracing` open: which action held a core when.

Every node is a process, every core and device a thread, every stretch of an action on it a slice;
what shares a device or an API at the same time has threads beside each other. Waiting actions and
cores in use are counters. The format is Chrome's JSON, in microseconds since the first entry.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from artangram.core.scheduling.action import Action
from artangram.core.scheduling.decisions import Report, Resize, Start
from artangram.core.scheduling.events import Finished, NodeJoined, NodeLost, Submitted
from artangram.core.scheduling.lease import Allocation, Calls, Cores, Devices
from artangram.observe.journal import Entry

US = 1e6
CLUSTER = 1
"""The process of the counters."""

TraceEvent = dict[str, Any]


def trace_events(entries: Iterable[Entry]) -> Iterator[TraceEvent]:
    """The events of a trace, slices in the order of their ends."""
    drawing = _Slices()
    for entry in entries:
        yield from drawing.at(entry)
    yield from drawing.end()


class _Slices:
    def __init__(self) -> None:
        self._began_at: float | None = None
        self._last_at = 0.0
        self._actions: dict[str, Action] = {}
        self._held: dict[str, tuple[float, tuple[Allocation, ...]]] = {}
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._ends: dict[tuple[int, str], list[float]] = {}
        self._num_waiting = 0
        self._counted: tuple[int, int] | None = None

    def at(self, entry: Entry) -> Iterator[TraceEvent]:
        if self._began_at is None:
            self._began_at = entry.at
            yield _name("process_name", CLUSTER, 0, "cluster")
        self._last_at = entry.at
        for event in entry.events:
            match event:
                case Submitted(action):
                    self._actions[action.id] = action
                    self._num_waiting += 1
                case Finished(action_id, outcome=outcome):
                    yield from self._close(action_id, entry.at, outcome.value)
                case NodeLost(_, node) | NodeJoined(_, node):
                    what = "lost" if isinstance(event, NodeLost) else "joined"
                    yield from self._mark(node, entry.at, f"{node} {what}")
        for decision in entry.decisions:
            match decision:
                case Start(lease):
                    self._num_waiting -= 1
                    self._held[lease.action_id] = (entry.at, lease.allocations)
                case Resize(action_id, cores):
                    how = "resized" if cores.cores else "preempted"
                    rest = self._held.get(action_id, (0.0, ()))[1][1:]
                    yield from self._close(action_id, entry.at, how)
                    self._held[action_id] = (entry.at, (cores, *rest))
                case Report(record):
                    if record.started_at is None:
                        self._num_waiting -= 1
                    yield from self._close(record.action_id, entry.at, record.outcome.value)
                    self._actions.pop(record.action_id, None)
        yield from self._counters(entry.at)

    def end(self) -> Iterator[TraceEvent]:
        for action_id in list(self._held):
            yield from self._close(action_id, self._last_at, "running")

    def _close(self, action_id: str, at: float, how: str) -> Iterator[TraceEvent]:
        since, allocations = self._held.pop(action_id, (0.0, ()))
        action = self._actions.get(action_id)
        for process, thread in _places(allocations):
            pid = self._processes.get(process)
            if pid is None:
                pid = self._processes[process] = CLUSTER + 1 + len(self._processes)
                yield _name("process_name", pid, 0, process)
            row = self._row(pid, thread, since, at)
            tid = self._threads.get((pid, row))
            if tid is None:
                tid = self._threads[pid, row] = 1 + len(self._threads)
                yield _name("thread_name", pid, tid, row)
            yield {
                "ph": "X",
                "name": action_id if action is None else action.kind,
                "cat": "action",
                "pid": pid,
                "tid": tid,
                "ts": self._us(since),
                "dur": max(0.0, (at - since) * US),
                "args": {
                    "action": action_id,
                    "ended": how,
                    "job": "" if action is None else action.job,
                    "trajectory": "" if action is None else action.trajectory or "",
                },
            }

    def _row(self, pid: int, thread: str, since: float, at: float) -> str:
        """The first row of `thread` that was free all that time; slices come as they end."""
        ends = self._ends.setdefault((pid, thread), [])
        for number, end in enumerate(ends):
            if end <= since:
                ends[number] = at
                return thread if number == 0 else f"{thread}, {number + 1}"
        ends.append(at)
        return thread if len(ends) == 1 else f"{thread}, {len(ends)}"

    def _mark(self, node: str, at: float, text: str) -> Iterator[TraceEvent]:
        pid = self._processes.get(node, CLUSTER)
        yield {"ph": "i", "s": "g", "name": text, "pid": pid, "tid": 0, "ts": self._us(at)}

    def _counters(self, at: float) -> Iterator[TraceEvent]:
        used = sum(
            len(one.cores)
            for _, allocations in self._held.values()
            for one in allocations
            if isinstance(one, Cores)
        )
        if (used, self._num_waiting) != self._counted:
            self._counted = (used, self._num_waiting)
            for name, value in (("cores in use", used), ("waiting", self._num_waiting)):
                args = {"value": max(0, value)}
                yield {"ph": "C", "name": name, "pid": CLUSTER, "ts": self._us(at), "args": args}

    def _us(self, at: float) -> float:
        return round((at - (self._began_at or 0.0)) * US, 3)


def _places(allocations: Iterable[Allocation]) -> Iterator[tuple[str, str]]:
    for one in allocations:
        match one:
            case Cores(_, node, cores):
                yield from ((node, f"core {core}") for core in cores)
            case Devices(_, node, first, degree):
                yield from ((node, f"device {n}") for n in range(first, first + degree))
            case Calls(resource):
                yield ("APIs", resource)


def _name(what: str, pid: int, tid: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
