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
    *, lowest: IsolationLevel = IsolationLevel.NAMESPACES, state_dir: Path | None = None
) -> SandboxProvider:
    """`NotCapable` when the level is below `lowest`; below NAMESPACES only when asked for."""
    found = await asyncio.to_thread(probe)
    if found.level < lowest:
        raise NotCapable(explain(found, lowest))
    if found.level >= IsolationLevel.NAMESPACES:
        return await NamespaceProvider.open(lowest=lowest, state_dir=state_dir)
    return await PlainProvider.open(level=found.level, state_dir=state_dir)
