"""What happened to one action, in words, from the entries of a journal.

A journal on disk is searched between two times only: an archive may hold years.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.core.ids import ActionId
from artangram.core.scheduling.decisions import Report, Resize, Start, Stop
from artangram.core.scheduling.events import Cancelled, Finished, NodeLost, Submitted
from artangram.core.scheduling.lease import Allocation, Calls, Cores, CoreShare, Devices
from artangram.core.scheduling.needs import Needs
from artangram.observe.journal import Entry, JournalDamaged, only_read

MOST_HAPPENINGS = 1000
"""Of one action: one that is resized for hours has more, of which the first are told."""

AROUND_S = 1e-3
"""Times are written with fewer digits than they are decided with."""


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One thing that happened to an action."""

    at: float
    what: str
    """One word: submitted, started, resized, preempted, stopped, ended, reported, ..."""
    detail: str = ""


def history_of(entries: Iterable[Entry], action_id: ActionId) -> tuple[HistoryEntry, ...]:
    """What `entries` say about an action, in order."""
    found: list[HistoryEntry] = []
    node: str | None = None
    for entry in entries:
        for event in entry.events:
            if isinstance(event, NodeLost):
                if event.node == node:
                    found.append(HistoryEntry(at=entry.at, what="lost", detail=event.reason))
            elif (told := _of_event(event, action_id)) is not None:
                found.append(HistoryEntry(at=entry.at, what=told[0], detail=told[1]))
        for decision in entry.decisions:
            told = _of_decision(decision, action_id)
            if told is not None:
                found.append(HistoryEntry(at=entry.at, what=told[0], detail=told[1]))
                if isinstance(decision, Start):
                    node = getattr(decision.lease.allocations[0], "node", None)
        if len(found) >= MOST_HAPPENINGS:
            break
    return tuple(found[:MOST_HAPPENINGS])


def _of_event(event: object, action_id: ActionId) -> tuple[str, str] | None:
    match event:
        case Submitted(action) if action.id == action_id:
            owner = f"job {action.job}" + (f", task {action.task}" if action.task else "")
            return "submitted", f"{action.kind}, {owner}; needs {_needs(action.needs)}"
        case Finished(id, outcome=outcome, reason=reason, attempt=attempt) if id == action_id:
            return "ended", f"attempt {attempt}: {outcome}" + (f", {reason}" if reason else "")
        case Cancelled(id, reason) if id == action_id:
            return "cancelled", reason
    return None


def _of_decision(decision: object, action_id: ActionId) -> tuple[str, str] | None:
    match decision:
        case Start(lease) if lease.action_id == action_id:
            where = ", ".join(map(_allocation, lease.allocations))
            prepare = f"; preparing takes {lease.prepare_s:.3g} s" if lease.prepare_s else ""
            return "started", f"attempt {lease.attempt} on {where}{prepare}"
        case Resize(id, cores) if id == action_id:
            if not cores.cores:
                return "preempted", "for work that is expected to end sooner"
            return "resized", f"to {_allocation(cores)}"
        case Stop(id, reason) if id == action_id:
            return "stopped", reason.value
        case Report(record) if record.action_id == action_id:
            times = f"waited {record.wait_s:.3f} s, overhead {record.overhead_s:.3f} s"
            why = f": {record.reason}" if record.reason else ""
            return "reported", f"{record.outcome}{why}; {times}, ran {record.run_s:.3f} s"
    return None


def _needs(needs: Needs) -> str:
    return ", ".join(
        f"{amounts[0]} {name}" if len(amounts) == 1 else f"{amounts[0]} to {amounts[-1]} {name}"
        for name, amounts in needs.amounts
    )


def _allocation(one: Allocation) -> str:
    match one:
        case Cores(_, node, cores):
            return f"{node}, cores {', '.join(map(str, sorted(cores)))}"
        case CoreShare(_, node):
            return f"a share of {node}"
        case Devices(_, node, first, degree, service):
            last = f" to {first + degree - 1}" if degree > 1 else ""
            loaded = ", to be loaded" if one.restored else ""
            return f"{service} on {node}, device {first}{last}{loaded}"
        case Calls(resource, units):
            return f"{units} calls of {resource}"
    return f"{one.units} slots of {one.resource}"


def entries_about(
    paths: Iterable[Path], action_id: ActionId, *, since: float, until: float
) -> Iterator[Entry]:
    """The entries of journals that name an action, in order. Blocks. Raises `JournalDamaged`.

    `paths` are files as a journal and its archive, the oldest entries first.
    """
    decode, last = msgspec.json.Decoder(Entry).decode, 0
    for path in paths:
        if not path.exists():
            continue
        try:
            with closing(sqlite3.connect(only_read(path), uri=True)) as database:
                for seq, body in _rows(database, action_id, since - AROUND_S, until + AROUND_S):
                    if seq > last:  # Else the archive had it.
                        last = seq
                        yield decode(body)
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise JournalDamaged(f"{path}: {error}; restore it from a copy") from error


def _rows(
    database: sqlite3.Connection, action_id: ActionId, since: float, until: float
) -> Iterator[tuple[int, str]]:
    first, last = database.execute("SELECT min(seq), max(seq) FROM entry").fetchone()
    if first is None:
        return
    first = _first_at(database, since, first, last)
    rows = database.execute(
        "SELECT seq, at, body FROM entry WHERE seq >= ? AND"
        " (instr(body, ?) > 0 OR instr(body, 'node_lost') > 0) ORDER BY seq",
        (first, msgspec.json.encode(action_id).decode()),
    )
    for seq, at, body in rows:
        if at > until:
            return
        yield seq, body


def _first_at(database: sqlite3.Connection, since: float, low: int, high: int) -> int:
    """The number of the first entry at or after `since`; entries are in the order of time."""
    while low < high:
        middle = (low + high) // 2
        seq, at = database.execute(
            "SELECT seq, at FROM entry WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,)
        ).fetchone()
        if at < since:
            low = seq + 1
        else:
            high = middle
    return low
