"""Who waits for what: futures of callers, each settled exactly once.

A future whose caller has gone away is nobody's trouble: its error counts as seen.
"""

import asyncio
from typing import Any

from artangram.core.ids import ActionId, TrajectoryId
from artangram.orchestrator.records import ActionResult, Receipt

Promise = asyncio.Future[None]


class Waiters:
    """Futures by action, by key and by closing trajectory."""

    def __init__(self) -> None:
        #: Bounded by the actions alive and by their callers.
        self._ended: dict[ActionId, list[asyncio.Future[ActionResult]]] = {}
        self._writing: set[Promise] = set()
        self._closing: dict[TrajectoryId, Promise] = {}
        self._ids: dict[str, ActionId] = {}
        self._keys: dict[ActionId, str] = {}

    def receipt(self, action_id: ActionId) -> Receipt:
        """For one more caller who waits for a live action."""
        ended: asyncio.Future[ActionResult] = asyncio.Future()
        self._ended.setdefault(action_id, []).append(ended)
        return Receipt(action_id=action_id, ended=ended)

    def expect(self, action_id: ActionId, key: str | None) -> Receipt:
        """For the first caller."""
        if key is not None:
            self._ids[key], self._keys[action_id] = action_id, key
        ended: asyncio.Future[ActionResult] = asyncio.Future()
        self._ended[action_id] = [ended]
        return Receipt(action_id=action_id, ended=ended)

    def settled(self, result: ActionResult) -> Receipt:
        """For a caller who asks after the end."""
        ended: asyncio.Future[ActionResult] = asyncio.Future()
        ended.set_result(result)
        return Receipt(action_id=result.action_id, ended=ended)

    def live_key(self, key: str) -> ActionId | None:
        """The live action that `key` stands for."""
        return self._ids.get(key)

    def is_awaited(self, action_id: ActionId) -> bool:
        """Does anybody still want to know how it ends?"""
        return any(not ended.done() for ended in self._ended.get(action_id, ()))

    def deliver(self, result: ActionResult) -> None:
        """An action has ended, and that is written down."""
        action_id = result.record.action_id
        key = self._keys.pop(action_id, None)
        if key is not None:
            del self._ids[key]
        for ended in self._ended.pop(action_id, ()):
            if not ended.done():
                ended.set_result(result)

    def writing(self) -> Promise:
        """For who wants to know when something is written down."""
        promise: Promise = asyncio.Future()
        self._writing.add(promise)
        return promise

    def written(self, promise: Promise) -> None:
        self._writing.discard(promise)
        _keep(promise)

    def closing(self, trajectory: TrajectoryId) -> Promise | None:
        """Done when a closing trajectory has left; `None` if it is not closing."""
        return self._closing.get(trajectory)

    def close(self, trajectory: TrajectoryId) -> Promise:
        """For who closes a trajectory."""
        gone: Promise = asyncio.Future()
        self._closing[trajectory] = gone
        return gone

    def gone(self, trajectory: TrajectoryId) -> None:
        """Nothing is left of a trajectory."""
        if trajectory in self._closing:
            _keep(self._closing.pop(trajectory))

    def fail(self, error: Exception) -> None:
        """Nobody will be answered any more."""
        futures: list[asyncio.Future[Any]] = [f for many in self._ended.values() for f in many]
        futures += [*self._writing, *self._closing.values()]
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # looked at: who has gone away does not complain
        for held in (self._ended, self._writing, self._closing):
            held.clear()


def _keep(promise: Promise) -> None:
    if not promise.done():
        promise.set_result(None)
