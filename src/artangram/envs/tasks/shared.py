"""Questions that many attempts ask: equal ones are asked once.

- Who asks first runs it; the others wait for the same answer.
- When it fails under the first, or the first is cancelled, the next one who waits asks anew.
- Answers are kept, or forgotten as soon as they are known: then only those are shared that are
  asked at the same time, as siblings do.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from artangram.core.errors import InfraFailed

T = TypeVar("T")


class Shared(Generic[T]):
    """See the module."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._asked: dict[Hashable, asyncio.Future[T]] = {}

    async def once(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to the question `key`, which `ask` finds out."""
        while (asked := self._asked.get(key)) is not None:
            try:
                return await asyncio.shield(asked)
            except (InfraFailed, asyncio.CancelledError):
                # Of who asked, and gone with it: then it is for us to ask. Or our own.
                if not asked.done() or _is_cancelled():
                    raise
                if self._asked.get(key) is asked:
                    del self._asked[key]
        asked = self._asked[key] = asyncio.ensure_future(ask())
        is_kept = False
        try:
            answer = await asked
            is_kept = self._keeps
            return answer
        finally:
            if not is_kept and self._asked.get(key) is asked:
                del self._asked[key]


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
