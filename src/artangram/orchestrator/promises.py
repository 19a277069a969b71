"""Futures that are done when the journal has what was posted with them."""

import asyncio
from collections.abc import Callable
from functools import partial

from artangram.aio import fail
from artangram.core.scheduling.events import Event
from artangram.observe.journal import KeptRecord
from artangram.orchestrator.driver import Driver
from artangram.orchestrator.live import Promise


class Promises:
    """Of callers that wait until something is written down."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._writing: set[Promise] = set()

    def post(
        self,
        event: Event | None,
        *,
        kept: KeptRecord | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> Promise:
        """Post; the future is done when the journal has it and all that was posted before.

        `then` is called right before.
        """
        promise: Promise = asyncio.Future()
        self._writing.add(promise)
        self._driver.post(event, kept=kept, then=partial(self._on_written, promise, then))
        return promise

    def fail(self, error: Exception) -> None:
        """Nothing will be written any more."""
        while self._writing:
            fail(self._writing.pop(), error)

    def _on_written(self, promise: Promise, then: Callable[[], None]) -> None:
        self._writing.discard(promise)
        then()
        if not promise.done():
            promise.set_result(None)
