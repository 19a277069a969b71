"""The history of an action, from what is remembered and from the journal on disk."""

import asyncio
from itertools import chain
from pathlib import Path

from artangram.core.ids import ActionId
from artangram.observe.history import HistoryEntry, entries_about, history_of
from artangram.observe.journal import Entry, Journal
from artangram.observe.journalfile import FileJournal
from artangram.observe.recording import ARCHIVE
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.records import decode_result


async def history(
    ledger: Ledger, journal: Journal, action_id: ActionId, *, now: float
) -> tuple[HistoryEntry, ...]:
    """What happened to an action, in order. Raises `KeyError` if nothing is known of it."""
    recent = list(ledger.recent)
    since, until = _lifetime(ledger, journal, action_id, now)
    older: list[Entry] = []
    if isinstance(journal, FileJournal) and (not recent or since <= recent[0].at):
        before = recent[0].at if recent else until
        paths = (journal.path.with_name(ARCHIVE), journal.path)
        older = await asyncio.to_thread(_read, paths, action_id, since, min(until, before))
        older = [entry for entry in older if not recent or entry.at < recent[0].at]
    found = history_of(chain(older, recent), action_id)
    if not found:
        raise KeyError(action_id)
    return found


def _read(paths: tuple[Path, ...], action_id: ActionId, since: float, until: float) -> list[Entry]:
    return list(entries_about(paths, action_id, since=since, until=until))


def _lifetime(
    ledger: Ledger, journal: Journal, action_id: ActionId, now: float
) -> tuple[float, float]:
    """From its submission to its end, or to now; nothing is known of one that was forgotten."""
    live = ledger.actions.get(action_id)
    if live is not None:
        return live.submitted_at, now
    body = journal.settled(f"action:{action_id}")
    if body is None:
        return now, now
    record = decode_result(body).record
    return record.submitted_at, record.ended_at
