"""How what happens outside of the scheduler reaches its driver."""

from collections.abc import Callable
from typing import Protocol

from artangram.core.scheduling.events import Event
from artangram.observe.journal import KeptRecord


class PostEvent(Protocol):
    """See `driver.Driver.post`."""

    def __call__(
        self,
        event: Event | None,
        *,
        kept: KeptRecord | None = None,
        then: Callable[[], None] | None = None,
        at_once: bool = False,
    ) -> None: ...
