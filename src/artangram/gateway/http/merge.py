"""Several streams as one, item by item as they come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Ends when all have ended; when one fails, or the caller has enough, all are closed."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield item
        return
    # One item per stream at most: a slow reader slows the streams.
    items: asyncio.Queue[T | _Ended] = asyncio.Queue(maxsize=len(streams))
    pumps = [asyncio.create_task(_pump(stream, items)) for stream in streams]
    try:
        running = len(pumps)
        while running:
            got = await items.get()
            if not isinstance(got, _Ended):
                yield got
            elif got.error is not None:
                raise got.error
            else:
                running -= 1
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)


class _Ended:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


async def _pump(stream: AsyncGenerator[T, None], items: "asyncio.Queue[T | _Ended]") -> None:
    try:
        async with aclosing(stream) as open_stream:
            async for item in open_stream:
                await items.put(item)
    except Exception as error:  # noqa: BLE001 - it is raised where the items are read
        await items.put(_Ended(error))
    else:
        await items.put(_Ended(None))
