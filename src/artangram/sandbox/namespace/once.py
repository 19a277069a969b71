"""Images that take long to prepare, each prepared once however many ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from artangram.sandbox.protocol import Image

Base = TypeVar("Base")


class Once(Generic[Base]):
    """What `prepare` makes of images; what failed is tried again by who asks next."""

    def __init__(self, prepare: Callable[[Image], Coroutine[Any, Any, Base]]) -> None:
        self._prepare = prepare
        self._made: dict[Image, asyncio.Task[Base]] = {}

    async def of(self, image: Image) -> Base:
        if image not in self._made:
            self._made[image] = asyncio.create_task(self._prepare(image))
        try:
            # Who goes away does not take it from the others.
            return await asyncio.shield(self._made[image])
        except Exception:
            self.forget(image)
            raise

    def forget(self, image: Image) -> None:
        """Who asks next has it prepared again."""
        self._made.pop(image, None)

    async def settle(self) -> None:
        """Return when nothing is being prepared."""
        if self._made:
            await asyncio.wait(self._made.values())
