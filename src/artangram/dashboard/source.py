"""Where pages have what they show of a cluster: from the orchestrator of this process, here."""

from http import HTTPStatus
from typing import Protocol

import msgspec
from msgspec import Struct

from artangram.core.ids import ActionId
from artangram.core.scheduling.explain import Explanation
from artangram.dashboard.view import Viewer
from artangram.observe.history import HistoryEntry
from artangram.observe.journal import JournalError

MOST_OUTPUT_CHARACTERS = 20_000
"""Of each stream of an action that has ended: its end, where errors are."""

Answered = tuple[bytes, HTTPStatus]
"""JSON, and whether it is what was asked for."""


class ViewSource(Protocol):
    async def view(self) -> Answered: ...

    async def action(self, action_id: ActionId) -> Answered: ...


class ActionView(Struct, frozen=True, kw_only=True):
    """All that is known of one action."""

    action: str
    history: tuple[HistoryEntry, ...] = ()
    explanation: Explanation | None = None
    """While it waits or runs."""
    stdout: str = ""
    stderr: str = ""


class OwnCluster:
    """The orchestrator of this process."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer

    async def view(self) -> Answered:
        return await self._viewer.encoded(), HTTPStatus.OK

    async def action(self, action_id: ActionId) -> Answered:
        backend = self._viewer.backend
        try:
            history = await backend.history(action_id)
        except (KeyError, JournalError) as error:
            message = "it is not known any more" if isinstance(error, KeyError) else str(error)
            return problem_answer(message, HTTPStatus.NOT_FOUND)
        try:
            explanation = await backend.explain(action_id)
            found = ActionView(action=action_id, history=history, explanation=explanation)
        except KeyError:
            found = self._ended(action_id, history)
        return msgspec.json.encode(found), HTTPStatus.OK

    def _ended(self, action_id: ActionId, history: tuple[HistoryEntry, ...]) -> ActionView:
        known = ActionView(action=action_id, history=history)
        try:
            ended = self._viewer.backend.orchestrator.receipt(action_id).ended
        except KeyError:
            return known
        if not ended.done():
            return known
        result = ended.result()
        return msgspec.structs.replace(
            known,
            stdout=result.stdout[-MOST_OUTPUT_CHARACTERS:],
            stderr=result.stderr[-MOST_OUTPUT_CHARACTERS:],
        )


def problem_answer(message: str, status: HTTPStatus) -> Answered:
    return msgspec.json.encode({"error": message}), status
