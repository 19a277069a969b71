"""Who runs functions: one verb, whatever is behind it."""

from collections.abc import Callable
from typing import Protocol

from artangram.functions.function import FunctionSpec


class FunctionRunner(Protocol):
    """Runs functions somewhere."""

    async def call(
        self,
        spec: FunctionSpec,
        body: bytes,
        *,
        hedged: bool = False,
        on_begun: Callable[[], None] = lambda: None,
    ) -> bytes:
        """The encoded answer to one call.

        Raises `CallFailed` with the function's own traceback, or `InfraFailed`. `on_begun` is
        called when the function begins. Whoever cancels this ends the call.
        """
        ...

    async def aclose(self) -> None: ...
