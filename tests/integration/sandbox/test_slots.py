"""Slots of cores that many sandboxes use in turn."""

from __future__ import annotations

import asyncio
import os

import pytest

from artangram.sandbox.namespace import cores as lending
from artangram.sandbox.namespace.provider import NamespaceProvider
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.protocol import Command, HostImage

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_only_the_command_that_grows_is_spread_over_new_cores(
    provider: NamespaceProvider, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who used its slot before are still in it, at rest, and may be thousands."""
    if not isinstance(provider.cores, lending.Slots):
        pytest.skip("this machine has no cpusets of version 1")
    guests = [await provider.create(HostImage()) for _ in range(3)]
    for guest in guests:
        await guest.run(Command(argv=("true",), cores=(0,)))
    spread: list[list[int]] = []
    monkeypatch.setattr(lending, "spread", lambda threads, cores, *, every: spread.append(threads))
    running = asyncio.create_task(sandbox.run(Command(argv=("sleep", "0.3"), cores=(0,))))
    await asyncio.sleep(0.15)
    await sandbox.resize((0, 1))
    (threads,) = spread
    assert sandbox.pid in threads
    assert len(threads) == 2
    assert (await running).ok
    for guest in guests:
        await guest.close()
