"""Open the strongest provider this machine has, and nothing weaker than the caller accepts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from artangram.sandbox.capabilities import IsolationLevel
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.namespace.provider import NamespaceProvider
from artangram.sandbox.plain.provider import PlainProvider
from artangram.sandbox.probe import explain, probe
from artangram.sandbox.protocol import SandboxProvider


async def open_provider(
    *,
    lowest: IsolationLevel = IsolationLevel.NAMESPACES,
    state_dir: Path | None = None,
    keep_for: str = "",
) -> SandboxProvider:
    """`NotCapable` when the level is below `lowest`; below NAMESPACES only when asked for.

    Named snapshots are kept for `keep_for`, and found again by it; without it they go at the end.
    """
    found = await asyncio.to_thread(probe)
    if found.level < lowest:
        raise NotCapable(explain(found, lowest))
    if found.level >= IsolationLevel.NAMESPACES:
        return await NamespaceProvider.open(lowest=lowest, state_dir=state_dir, keep_for=keep_for)
    return await PlainProvider.open(level=found.level, state_dir=state_dir, keep_for=keep_for)
