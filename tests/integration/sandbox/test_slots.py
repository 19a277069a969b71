"""Which cores a command is lent: slots that many sandboxes use in turn, or a group of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

import pytest

from artangram.sandbox.namespace import cores as lending
from artangram.sandbox.namespace.kernel import processes_below
from artangram.sandbox.namespace.provider import NamespaceProvider
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.protocol import Command, HostImage
from busy_machine import eventually

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
    running = asyncio.create_task(sandbox.run(Command(argv=("sleep", "1000"), cores=(0,))))
    assert await eventually(lambda: len(processes_below(sandbox.pid)) == 2)
    await sandbox.resize((0, 1))
    (threads,) = spread
    assert sandbox.pid in threads
    assert len(threads) == 2
    sandbox.end_command()
    await running
    for guest in guests:
        await guest.close()


class OwnGroup:
    """What is asked of a sandbox's groups in version 2."""

    def __init__(self, directory: Path) -> None:
        self.cpuset = str(directory)
        (directory / "cpuset.cpus").touch()
        (directory / "cgroup.threads").touch()


async def test_a_group_of_its_own_always_names_cores(tmp_path: Path) -> None:
    """Linux 6.1 refuses an empty set to a group that has processes."""
    groups, written = cast(Any, OwnGroup(tmp_path)), tmp_path / "cpuset.cpus"
    hold = lending.GroupCores().lend(groups, 1, cores=(1,))
    lent = written.read_text()
    hold.resize((0, 1))
    grown = written.read_text()
    hold.release()
    assert (lent, grown) == ("1", "0,1")
    assert written.read_text() != ""
    lending.GroupCores().lend(groups, 1, cores=())
    assert written.read_text() == lending.as_list(tuple(os.sched_getaffinity(0)))
