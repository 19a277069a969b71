"""Kill every part with -9: what should be gone is gone at once, what should live lives on."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from busy_machine import eventually, within
from process_support import is_alive

from artangram.sandbox import (
    Command,
    HostImage,
    Limits,
    NamespaceProvider,
    NotCapable,
    SandboxError,
    SandboxGone,
)
from artangram.sandbox.inside.population import children
from artangram.sandbox.namespace import sandbox as sandboxes
from artangram.sandbox.namespace.kernel import processes_below
from artangram.sandbox.namespace.sandbox import LocalSandbox

from .conftest import groups_of
from .owner import NUM_PROCESSES

pytestmark = pytest.mark.asyncio(loop_scope="package")

SOON_S = 0.2


def left_of(owned: dict[str, Any]) -> list[str]:
    return [path for path in (*owned["groups"], owned["run"]) if os.path.exists(path)]


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


@pytest.fixture
def owner(state_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    script = Path(__file__).with_name("owner.py")
    process = subprocess.Popen([sys.executable, script, state_dir], stdout=subprocess.PIPE)
    assert process.stdout is not None
    owned = json.loads(process.stdout.readline())
    assert len(owned["pids"]) == NUM_PROCESSES
    yield process, owned
    process.kill()
    process.wait()
    process.stdout.close()


async def test_killed_owner_leaves_nothing(
    owner: tuple[subprocess.Popen[bytes], dict[str, Any]],
) -> None:
    """Half of the sandboxes run a command, the others are frozen with a kept process."""
    process, owned = owner
    process.kill()
    assert await within(SOON_S, lambda: not any(map(is_alive, owned["pids"])))
    assert await within(SOON_S, lambda: not is_alive(owned["zygote"]))
    assert left_of(owned) == []


async def test_killed_owner_and_zygote_leave_only_what_the_next_start_sweeps(
    owner: tuple[subprocess.Popen[bytes], dict[str, Any]], state_dir: Path
) -> None:
    process, owned = owner
    os.kill(owned["zygote"], signal.SIGKILL)
    process.kill()
    assert await within(SOON_S, lambda: not any(map(is_alive, owned["pids"])))
    os.utime(owned["run"], (0, 0))  # A young one might belong to a provider in birth.
    following = await NamespaceProvider.open(state_dir=state_dir)
    assert left_of(owned) == []
    await following.close()


async def test_terminated_owner_leaves_nothing(
    owner: tuple[subprocess.Popen[bytes], dict[str, Any]],
) -> None:
    process, owned = owner
    process.terminate()
    assert await within(SOON_S, lambda: not any(map(is_alive, owned["pids"])))


@pytest_asyncio.fixture(loop_scope="package")
async def own_provider(state_dir: Path) -> AsyncIterator[NamespaceProvider]:
    provider = await NamespaceProvider.open(state_dir=state_dir)
    yield provider
    groups = groups_of(provider)
    await provider.close()
    assert not [group for group in groups if group.exists()]


async def a_running_sleep(sandbox: LocalSandbox) -> asyncio.Task[Any]:
    running = asyncio.create_task(sandbox.run(Command(argv=("sleep", "1000"), timeout_s=1000)))
    assert await eventually(lambda: len(processes_below(sandbox.pid)) == 2)
    return running


async def test_killed_zygote_ends_its_sandboxes_and_is_replaced(
    own_provider: NamespaceProvider,
) -> None:
    sandboxes = [await own_provider.create(HostImage()) for _ in range(4)]
    running = await a_running_sleep(sandboxes[0])
    pids = [pid for sandbox in sandboxes for pid in processes_below(sandbox.pid)]
    os.kill(own_provider.zygote_pid, signal.SIGKILL)
    with pytest.raises(SandboxGone):
        await running
    assert await within(SOON_S, lambda: not any(map(is_alive, pids)))
    assert await within(SOON_S, lambda: not own_provider.live)
    following = await own_provider.create(HostImage())
    assert (await following.run(Command(argv=("true",)))).ok


async def test_killed_init_is_infrastructure_and_leaves_no_process(
    own_provider: NamespaceProvider,
) -> None:
    sandbox, neighbour = [await own_provider.create(HostImage()) for _ in range(2)]
    running = await a_running_sleep(sandbox)
    pids = processes_below(sandbox.pid)
    os.kill(sandbox.pid, signal.SIGKILL)
    with pytest.raises(SandboxGone):
        await running
    assert await within(SOON_S, lambda: not any(map(is_alive, pids)))
    assert not sandbox.is_alive
    await sandbox.close()
    left = [child for group in groups_of(own_provider) for child in group.glob(sandbox.name)]
    assert left == []
    assert (await neighbour.run(Command(argv=("true",)))).ok


async def test_killed_command_is_a_result(own_provider: NamespaceProvider) -> None:
    sandbox = await own_provider.create(HostImage())
    running = await a_running_sleep(sandbox)
    os.kill(processes_below(sandbox.pid)[1], signal.SIGKILL)
    result = await running
    assert (result.signal, result.timed_out, result.out_of_memory) == (9, False, False)
    assert (await sandbox.run(Command(argv=("true",)))).ok


async def test_stuck_init_is_killed_and_the_command_timed_out(
    own_provider: NamespaceProvider,
) -> None:
    sandbox = await own_provider.create(HostImage())
    running = asyncio.create_task(sandbox.run(Command(argv=("sleep", "9"), timeout_s=0.3)))
    assert await eventually(lambda: len(processes_below(sandbox.pid)) == 2)
    os.kill(sandbox.pid, signal.SIGSTOP)
    result = await running
    assert result.timed_out
    assert await within(SOON_S, lambda: not sandbox.is_alive)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_who_is_asked_twice_to_end_a_command_lives_on(
    provider: NamespaceProvider, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """Whoever does not answer in time is taken for stuck, and init answers once."""
    monkeypatch.setattr(sandboxes, "GRACE_S", 0.5)
    sandbox = await provider.create(HostImage())
    # On init's own core: it dies only when init has heard us out.
    running = asyncio.create_task(sandbox.run(Command(argv=("sleep", "1000"), cores=(0,))))
    await asyncio.sleep(0.05)
    sandbox.end_command()
    if is_cancelled:
        running.cancel()
    sandbox.end_command()
    await asyncio.wait({running})
    await asyncio.sleep(0.7)
    assert (await sandbox.run(Command(argv=("true",)))).ok
    await sandbox.close()


async def test_nobody_is_forgotten_however_many_there_are(own_provider: NamespaceProvider) -> None:
    """The kernel tells of children a page at a time. Who is not told of would not be frozen."""
    limits = Limits(memory_mb=2048, processes=1100)
    sandbox = await own_provider.create(HostImage(), limits=limits)
    fork = "import os, time\nfor _ in range(1000):\n  if not os.fork(): time.sleep(1000)"
    argv = ("python3", "-I", "-S", "-c", fork)
    assert (await sandbox.run(Command(argv=argv, keep=True))).leftovers_kept == 1000
    assert len(processes_below(sandbox.pid)) == 1001
    await sandbox.close()


async def test_who_needs_a_sandbox_awake_is_not_overtaken_by_its_freezing(
    own_provider: NamespaceProvider,
) -> None:
    sandbox = await own_provider.create(HostImage())
    await sandbox.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
    with no_free_thread() as free:
        reading = asyncio.create_task(sandbox.read("/etc/passwd"))
        await asyncio.sleep(0.1)  # It has been answered, and the sandbox is about to be frozen.
        writing = asyncio.create_task(sandbox.write("large", bytes(100 << 20)))
        await asyncio.sleep(0)
        free()
        await asyncio.wait_for(writing, 10)
        await asyncio.wait_for(reading, 10)
    assert (await sandbox.run(Command(argv=("true",), timeout_s=10))).leftovers_kept == 1
    await sandbox.close()


@pytest.mark.parametrize("steps", range(4))
async def test_who_comes_while_a_frozen_sandbox_is_closed_is_told(
    own_provider: NamespaceProvider, steps: int
) -> None:
    """Between its thaw and its end there are a few steps of the event loop."""
    box = await own_provider.create(HostImage())
    await box.run(Command(argv=("sh", "-c", "sleep 1000 &"), keep=True))
    closing = asyncio.create_task(box.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    with suppress(SandboxGone):
        await asyncio.wait_for(box.run(Command(argv=("true",))), 10)
    await closing


async def test_what_died_while_it_was_frozen_can_be_closed(
    own_provider: NamespaceProvider,
) -> None:
    sandbox = await own_provider.create(HostImage())
    await sandbox.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
    os.kill(sandbox.pid, signal.SIGKILL)
    # Its groups are gone, and we have not heard of it: nobody awaits anything here.
    while any(list(group.glob(sandbox.name)) for group in groups_of(own_provider)):
        time.sleep(0.005)  # noqa: ASYNC251
    await sandbox.close()
    assert not own_provider.live


@contextmanager
def no_free_thread() -> Iterator[Callable[[], None]]:
    """Work for the loop's threads waits until the block ends, or what it gets is called."""
    go, loop = threading.Event(), asyncio.get_running_loop()
    for _ in range(64):
        loop.run_in_executor(None, go.wait)
    try:
        yield go.set
    finally:
        go.set()


async def test_closing_many_leaves_no_descriptor(own_provider: NamespaceProvider) -> None:
    await own_provider.create(HostImage())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        made = await asyncio.gather(*(own_provider.create(HostImage()) for _ in range(12)))
        await asyncio.gather(*(box.run(Command(argv=("echo", "x"), cores=(0,))) for box in made))
        await asyncio.gather(*(box.close() for box in made))
    slots = 12  # each keeps one descriptor for the provider's life
    assert len(os.listdir("/proc/self/fd")) <= before + slots
    assert len(own_provider.live) == 1


async def test_a_closed_provider_leaves_no_descriptor(state_dir: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    provider = await NamespaceProvider.open(state_dir=state_dir)
    sandbox = await provider.create(HostImage())
    await sandbox.run(Command(argv=("true",), cores=(0,)))
    await provider.close()
    assert set(os.listdir("/proc/self/fd")) <= before


async def test_machine_sees_no_mount_of_a_sandbox(own_provider: NamespaceProvider) -> None:
    before = mounts()
    await own_provider.create(HostImage())
    assert mounts() == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandboxes are cloned ahead")
async def test_the_clone_made_ahead_is_used_and_not_missed_when_it_dies(state_dir: Path) -> None:
    provider = await open_provider(state_dir)
    try:
        first = await provider.create(HostImage())

        def spares() -> set[int]:
            return set(children(provider.zygote_pid)) - {b.pid for b in provider.live.values()}

        assert await eventually(lambda: len(spares()) == 1)
        (spare,) = spares()
        second = await provider.create(HostImage())
        assert second.pid == spare
        assert await eventually(lambda: len(spares()) == 1)
        (spare,) = spares()
        os.kill(spare, signal.SIGKILL)
        assert await eventually(lambda: not is_alive(spare))
        third = await provider.create(HostImage())
        looks = Command(argv=("cat", "/proc/self/mounts", "/proc/net/fib_trie"))
        seen = [await sandbox.run(looks) for sandbox in (first, second, third)]
        assert all(result.ok for result in seen)
        assert len({result.stdout for result in seen}) == 1
        assert await eventually(lambda: len(spares()) == 1)
        (spare,) = spares()
        os.kill(provider.zygote_pid, signal.SIGKILL)
        assert await eventually(lambda: not is_alive(spare))
    finally:
        await provider.close()


async def open_provider(state_dir: Path) -> NamespaceProvider:
    try:
        return await NamespaceProvider.open(state_dir=state_dir)
    except NotCapable as problem:
        pytest.skip(str(problem))


@contextmanager
def no_room_for_descriptors() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(name) for name in os.listdir("/proc/self/fd")) + 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("script", ["sleep 0.1; echo hi", "head -c 60000 /dev/zero"])
async def test_output_nobody_can_receive_is_not_the_programs_fault(
    provider: NamespaceProvider, script: str
) -> None:
    """It would else look as if a broken pipe had ended the program."""
    sandbox = await provider.create(HostImage())
    command = Command(argv=("/bin/sh", "-c", script))
    assert (await sandbox.run(command)).ok
    with no_room_for_descriptors(), pytest.raises(SandboxError, match="too many open files"):
        await sandbox.run(command)
    assert (await sandbox.run(command)).ok
    await sandbox.close()


async def test_files_nobody_can_receive_are_not_the_programs_fault(
    provider: NamespaceProvider,
) -> None:
    sandbox = await provider.create(HostImage())
    await sandbox.write("file", b"x")
    with no_room_for_descriptors():
        with pytest.raises(SandboxError, match="too many open files"):
            await sandbox.read("file")
        with pytest.raises(SandboxError, match="Too many open files"):
            await sandbox.snapshot()
    assert await sandbox.read("file") == b"x"
    await sandbox.close()


async def test_a_cancelled_read_takes_nothing_from_who_has_its_descriptor_next(
    provider: NamespaceProvider,
) -> None:
    sandbox = await provider.create(HostImage())
    await sandbox.write("large", bytes(60 << 20))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        reading = asyncio.create_task(sandbox.read("large"))
        await asyncio.sleep(0.005)  # A thread reads by now.
        reading.cancel()
        await asyncio.wait({reading})
        pipes = [os.pipe() for _ in range(4)]
        for _, inlet in pipes:
            os.write(inlet, b"of somebody else")
            os.close(inlet)
        await asyncio.sleep(0.05)
        for outlet, _ in pipes:
            assert os.read(outlet, 100) == b"of somebody else"
            os.close(outlet)
    assert len(os.listdir("/proc/self/fd")) == before
    await sandbox.close()


async def test_who_is_cancelled_leaves_no_descriptor(provider: NamespaceProvider) -> None:
    sandbox = await provider.create(HostImage())
    await sandbox.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
    before = len(os.listdir("/proc/self/fd"))
    with no_free_thread():
        readings = [asyncio.create_task(sandbox.read("/etc/passwd")) for _ in range(10)]
        await asyncio.sleep(0.1)  # They have been answered; the last waits for the freezing.
        for reading in readings:
            reading.cancel()
    await asyncio.wait(readings)
    del readings, reading  # They remember where they were.
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    await sandbox.close()


async def test_a_snapshot_that_nobody_gets_leaves_no_files(
    own_provider: NamespaceProvider,
) -> None:
    snapshots = own_provider.run_path / "snapshots" / "layers"
    sandbox = await own_provider.create(HostImage())
    many = "for n in range(5000): open(f'file{n}', 'w').write('x' * 5000)"
    await sandbox.run(Command(argv=("python3", "-I", "-S", "-c", many)))
    taking = asyncio.create_task(sandbox.snapshot())
    assert await eventually(lambda: bool(os.listdir(snapshots)))
    taking.cancel()
    await asyncio.wait({taking})
    assert taking.cancelled()
    assert os.listdir(snapshots) == []
    assert (await sandbox.run(Command(argv=("true",)))).ok
