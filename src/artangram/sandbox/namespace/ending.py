"""End many sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from artangram.sandbox.namespace.sandbox import LocalSandbox

MAX_ENDING = 8
"""More sandboxes ended at once only wait for the kernel's locks."""


async def close_all(sandboxes: Iterable[LocalSandbox]) -> None:
    ending = asyncio.Semaphore(MAX_ENDING)

    async def end(sandbox: LocalSandbox) -> None:
        async with ending:
            await sandbox.close()

    await asyncio.gather(*map(end, list(sandboxes)), return_exceptions=True)
