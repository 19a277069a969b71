"""Which cores a command is lent: slots that many sandboxes use in turn, or a group of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from busy_machine import eventually

from artangram.core.errors import BadInput
from artangram.sandbox.namespace import cores as lending
from artangram.sandbox.namespace import localprovider
from artangram.sandbox.namespace.compiled import find_compiler
from artangram.sandbox.namespace.kernel import processes_below
from artangram.sandbox.namespace.provider import NamespaceProvider
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.protocol import Command, HostImage

FIRST = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK

KEEPS_THREADS = """
import os, threading, time
ready, told = os.pipe()
if os.fork():
    os.read(ready, 1)
    os._exit(0)
for _ in range(2):
    threading.Thread(target=time.sleep, args=[1000]).start()
os.write(told, b"x")
"""

#: Chains of processes, each of which forks the next and ends.
KEEPS_FORKING = """
import os
if os.fork():
    os._exit(0)
for _ in range(3):
    if not os.fork():
        break
while True:
    if os.fork():
        os._exit(0)
"""

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_only_the_command_that_grows_is_spread_over_new_cores(
    provider: NamespaceProvider, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who used its slot before are still in it, at rest, and may be thousands."""
    if not isinstance(provider.cores, lending.CpusetSlots):
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


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_who_ran_beside_others_takes_no_core_from_them_when_it_is_woken(
    provider: NamespaceProvider, sandbox: LocalSandbox
) -> None:
    """But for its init, which comes first while a command runs, no program is told apart."""
    if not isinstance(provider.cores, lending.CpusetSlots) or not find_compiler():
        pytest.skip("this machine has no cpusets of version 1, or no compiler")
    tells = "import os, time; time.sleep(0.1); print(os.sched_getscheduler(0), os.nice(0))"
    told = Command(argv=("python3", "-c", tells), cores=(0,))
    usual = b"%d 0\n" % os.SCHED_OTHER
    assert (await sandbox.run(told)).stdout == usual
    assert await rests_with(sandbox, os.SCHED_OTHER)
    other = await provider.create(HostImage())
    beside = asyncio.create_task(other.run(Command(argv=("sleep", "1000"), cores=(1,))))
    assert await eventually(lambda: len(processes_below(other.pid)) == 2)
    for _ in range(2):
        running = asyncio.create_task(sandbox.run(told))
        assert await eventually(lambda: len(processes_below(sandbox.pid)) == 2)
        assert await eventually(lambda: os.sched_getscheduler(sandbox.pid) == FIRST)
        assert (await running).stdout == usual
        assert await rests_with(sandbox, os.SCHED_BATCH)
    other.end_command()
    await beside
    assert (await sandbox.run(told)).stdout == usual
    assert await rests_with(sandbox, os.SCHED_OTHER)
    await other.close()


async def rests_with(sandbox: LocalSandbox, policy: int) -> bool:
    """Does its init get there, when nothing runs any more?"""
    expected = policy | os.SCHED_RESET_ON_FORK
    return await eventually(lambda: os.sched_getscheduler(sandbox.pid) == expected)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("compiled", [True, False])
class TestAtRest:
    @pytest_asyncio.fixture(loop_scope="package")
    async def provider(self, state_dir: Path, compiled: bool) -> AsyncIterator[NamespaceProvider]:
        provider = await NamespaceProvider.open(state_dir=state_dir, compiled=compiled)
        if not isinstance(provider.cores, lending.CpusetSlots):
            pytest.skip("this machine has no cpusets of version 1")
        yield provider
        await provider.close()

    async def test_who_ran_beside_others_is_in_nobodys_way(
        self, provider: NamespaceProvider
    ) -> None:
        """Woken for other cores, it would have to wait for who is lent these."""
        boxes = [await provider.create(HostImage()) for _ in range(2)]
        commands = [Command(argv=("sleep", "0.1"), cores=(core,)) for core in (0, 1)]
        await asyncio.gather(*map(LocalSandbox.run, boxes, commands))
        assert await eventually(lambda: not in_a_slot(boxes[1]))

    async def test_no_slot_is_lost_to_cores_that_nobody_has(
        self, provider: NamespaceProvider
    ) -> None:
        box = await provider.create(HostImage())
        for _ in range(2):
            with pytest.raises(BadInput):
                await box.run(Command(argv=("true",), cores=(4095,)))
        assert provider.cores.num_lent == 0

    async def test_of_many_sandboxes_none_rests_in_a_slot(
        self, provider: NamespaceProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(localprovider, "MOST_RESTING", 0)
        box = await provider.create(HostImage())
        await box.run(Command(argv=("true",), cores=(0,)))
        assert await eventually(lambda: not in_a_slot(box))

    async def test_a_command_has_its_cores_wherever_its_sandbox_was(
        self, provider: NamespaceProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        box = await provider.create(HostImage())
        every = tuple(sorted(os.sched_getaffinity(0)))
        for most_resting in (16, 0, 16):
            monkeypatch.setattr(localprovider, "MOST_RESTING", most_resting)
            for cores in ((0,), (0,), (1,), (), (1,), ()):
                assert await allowed(box, cores=cores) == set(cores or every)

    async def test_who_is_kept_comes_along_to_the_next_cores(
        self, provider: NamespaceProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(localprovider, "MOST_RESTING", 0)
        box = await provider.create(HostImage())
        await box.run(Command(argv=("sh", "-c", "sleep 1000 &"), cores=(0,), keep=True))
        assert await allowed(box, cores=(1,)) == {1}
        kept = processes_below(box.pid)[1:]
        assert [os.sched_getaffinity(pid) for pid in kept] == [{1}]

    async def test_who_is_kept_comes_along_with_all_threads(
        self, provider: NamespaceProvider
    ) -> None:
        """Into another slot, since a neighbour is lent the one they were started in."""
        box, neighbour = [await provider.create(HostImage()) for _ in range(2)]
        argv = ("python3", "-I", "-S", "-c", KEEPS_THREADS)
        assert (await box.run(Command(argv=argv, cores=(0,), keep=True))).leftovers_kept == 1
        assert neighbour.begin(Command(argv=("sleep", "60"), cores=(0,)), lambda _: None)
        assert await allowed(box, cores=(1,)) == {1}
        threads = lending.threads_below(processes_below(box.pid)[1])
        assert [os.sched_getaffinity(tid) for tid in threads] == [{1}] * 3

    async def test_who_forks_without_end_is_frozen_and_then_on_no_neighbours_core(
        self, provider: NamespaceProvider
    ) -> None:
        """Who looks where it is while it runs would miss it."""
        argv = ("python3", "-I", "-S", "-c", KEEPS_FORKING)
        for _ in range(6):
            box, neighbour = [await provider.create(HostImage()) for _ in range(2)]
            assert (await box.run(Command(argv=argv, cores=(0,), keep=True))).leftovers_kept
            frozen = processes_below(box.pid)
            await asyncio.sleep(0.02)
            assert processes_below(box.pid) == frozen
            assert neighbour.begin(Command(argv=("sleep", "60"), cores=(0,)), lambda _: None)
            assert await strangers_beside(neighbour, box, cores=(1,)) == set()
            await box.close()
            await neighbour.close()


async def strangers_beside(
    neighbour: LocalSandbox, box: LocalSandbox, *, cores: tuple[int, ...]
) -> set[int]:
    """Who is in the slot of `neighbour` while `box` runs a command elsewhere, besides its own."""
    assert await eventually(lambda: in_a_slot(neighbour))
    slot = slot_of(neighbour)
    strangers: set[int] = set()
    async for _ in box.stream(Command(argv=("sh", "-c", "echo; sleep 0.1"), cores=cores)):
        strangers |= {int(tid) for tid in (slot / "tasks").read_text().split()}
    return strangers - set(processes_below(neighbour.pid))


def in_a_slot(box: LocalSandbox) -> bool:
    return slot_of(box).name.startswith("slot-")


def slot_of(box: LocalSandbox) -> Path:
    name = Path(f"/proc/{box.pid}/cpuset").read_text().strip()
    return Path("/sys/fs/cgroup/cpuset", name.lstrip("/"))


async def allowed(box: LocalSandbox, *, cores: tuple[int, ...]) -> set[int]:
    """The cores that a command which is lent `cores` may use."""
    program = "import os; print(*os.sched_getaffinity(0))"
    argv = ("python3", "-I", "-S", "-c", program)
    result = await box.run(Command(argv=argv, cores=cores))
    return {int(core) for core in result.stdout.split()}


class OwnGroup:
    """What is asked of a sandbox's groups in version 2."""

    def __init__(self, directory: Path) -> None:
        self.cpuset = str(directory)
        (directory / "cpuset.cpus").touch()
        (directory / "cgroup.threads").touch()


async def test_a_group_of_its_own_always_names_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux 6.1 refuses an empty set to a group that has processes."""
    monkeypatch.setattr(lending, "all_cores", lambda: frozenset(range(4)))
    groups, written = cast(Any, OwnGroup(tmp_path)), tmp_path / "cpuset.cpus"
    hold = lending.GroupCores().lend(groups, 1, cores=(1,))
    lent = written.read_text()
    hold.resize((0, 1))
    grown = written.read_text()
    hold.release()
    assert (lent, grown) == ("1", "0,1")
    assert written.read_text() != ""
    lending.GroupCores().lend(groups, 1, cores=())
    assert written.read_text() == "0,1,2,3"
