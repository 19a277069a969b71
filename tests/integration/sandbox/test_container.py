"""Sandboxes in containers: the same attacks, killed owners, and images that want too much."""

# ruff: noqa: ASYNC240 - a test may block

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from busy_machine import PATIENCE_S, at_best, eventually, within
from process_support import is_alive

from artangram.sandbox import (
    Command,
    ContainerProvider,
    EngineImage,
    HostImage,
    ImageError,
    NotCapable,
)
from artangram.sandbox.container import engine
from artangram.sandbox.container import provider as providers
from artangram.sandbox.namespace.sandbox import LocalSandbox

from .conftest import SMALL
from .test_attacks import (  # noqa: F401 - run again
    TestBombs,
    TestCores,
    TestFiles,
    TestInit,
    TestKernel,
    TestNetwork,
)
from .test_faults import left_of

pytestmark = pytest.mark.asyncio(loop_scope="package")

INSTALL_ENGINE = Path(__file__).parents[2] / "install_engine.sh"
SOON_S = 1.0
WRITABLE = "/work /tmp /var/tmp /dev/shm"


@pytest.fixture(scope="module", autouse=True)
def podman() -> None:
    command = ["sh", INSTALL_ENGINE, "engine"]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"no engine for the container provider: {installed.stderr[-500:]}")


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def provider(podman: None, state_dir: Path) -> AsyncIterator[ContainerProvider]:
    before = set(os.listdir("/proc/self/fd"))
    try:
        provider = await ContainerProvider.open(state_dir=state_dir)
    except NotCapable as problem:
        pytest.skip(str(problem))
    groups = (provider.run_path / "groups").read_text().splitlines()
    yield provider
    await provider.close()
    assert not [group for group in groups if os.path.exists(group)]
    assert not provider.run_path.exists()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def shared(provider: ContainerProvider) -> AsyncIterator[LocalSandbox]:
    sandbox = await provider.create(HostImage(), limits=SMALL)
    yield sandbox
    await sandbox.close()


@pytest_asyncio.fixture(loop_scope="package")
async def sandbox(shared: LocalSandbox) -> AsyncIterator[LocalSandbox]:
    """One for all attacks: an engine is too slow to give each its own."""
    yield shared
    # Whoever was kept ends with an overdue command.
    await shared.run(Command(argv=("sleep", "60"), timeout_s=0.01))
    await shared.run(Command(argv=("sh", "-c", f"find {WRITABLE} -xdev -mindepth 1 -delete")))


def containers() -> str:
    listed = ["podman", "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


async def test_an_action_does_not_pay_for_the_engine(sandbox: LocalSandbox) -> None:
    async def action() -> float:
        began_at = time.monotonic()
        assert (await sandbox.run(Command(argv=("true",)))).ok
        return time.monotonic() - began_at

    await at_best(action, below=0.03)  # An exec of the engine takes a hundred milliseconds.


async def test_init_competes_for_cores_as_its_provider_does(provider: ContainerProvider) -> None:
    """In the engine's own group it would hold deadlines late on a busy machine."""
    sandbox = await provider.create(HostImage())  # The shared one may have had a share of a core.

    def cpu_group(pid: int | str) -> list[str]:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        return [line for line in lines if "cpu" in line.split(":")[1].split(",")]

    assert cpu_group(sandbox.pid) == cpu_group("self")
    await sandbox.close()


async def test_closed_sandbox_is_gone_from_the_engine(provider: ContainerProvider) -> None:
    sandbox = await provider.create(HostImage())
    assert sandbox.name in await asyncio.to_thread(containers)
    await sandbox.close()
    assert sandbox.name not in await asyncio.to_thread(containers)


async def test_who_is_cancelled_while_a_container_is_made_leaves_none(
    provider: ContainerProvider,
) -> None:
    before = set(provider.live)
    making = asyncio.create_task(provider.create(HostImage()))
    # It has reported, and is not limited yet: nobody tells of that, and it does not last.
    while set(provider.live) == before:  # noqa: ASYNC110
        await asyncio.sleep(0)
    making.cancel()
    await asyncio.wait({making})
    assert making.cancelled()
    assert set(provider.live) == before


async def test_killed_container_is_told_and_leaves_the_others(
    provider: ContainerProvider, sandbox: LocalSandbox
) -> None:
    victim = await provider.create(HostImage())
    os.kill(victim.pid, 9)
    await asyncio.wait_for(victim.ended.wait(), PATIENCE_S)
    assert not victim.is_alive
    assert (await sandbox.run(Command(argv=("true",)))).ok


@contextlib.contextmanager
def an_owner(state_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    script = Path(__file__).with_name("container_owner.py")
    process = subprocess.Popen([sys.executable, script, state_dir], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_killed_owner_leaves_nothing(state_dir: Path) -> None:
    """One container runs a command, one is frozen with a kept process."""
    with an_owner(state_dir) as (process, owned):
        services = our_services(process.pid)
        assert len(services) == 1
        process.kill()
        assert await within(SOON_S, lambda: not any(map(is_alive, owned["pids"])))
        assert await eventually(lambda: not any(map(is_alive, services)))
    assert await within(SOON_S, lambda: left_of(owned) == [])
    assert await eventually(lambda: Path(owned["run"]).name not in containers())
    following = await ContainerProvider.open(state_dir=state_dir)
    await following.close()
    assert Path(owned["run"]).name.encode().hex() not in images()


def our_services(owner: int) -> list[int]:
    listed = Path(f"/proc/{owner}/task/{owner}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in listed}
    return [pid for pid, command in commands.items() if b"podman" in command]


async def test_what_the_engine_forgets_goes_with_us(provider: ContainerProvider) -> None:
    (service,) = our_services(os.getpid())
    environ = Path(f"/proc/{service}/environ").read_bytes().split(b"\0")
    assert b"TMPDIR=" + os.fsencode(provider.run_path) in environ


def images() -> str:
    listed = ["podman", "images", "--format", "{{.Repository}}"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def an_engine_image(root: Path, *changes: str) -> Iterator[str]:
    """The name of an image of `root` that podman has meanwhile."""
    archive = root.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(root, arcname=".")
    name = f"localhost/artangram-test-{os.getpid()}"
    options = [word for change in changes for word in ("--change", change)]
    importing = ["podman", "import", "-q", *options, str(archive), name]
    subprocess.run(importing, check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["podman", "rmi", "-f", name], check=True, capture_output=True)


async def test_images_of_the_engine_go_by_name(provider: ContainerProvider, rootfs: Path) -> None:
    with an_engine_image(rootfs) as name:
        sandbox = await provider.create(EngineImage(name=name))
        assert await sandbox.read("/etc/release") == b"tiny 1"
        await sandbox.close()
    with pytest.raises(ImageError, match="no-such-image"):
        await provider.create(EngineImage(name="localhost/no-such-image"))


async def test_image_cannot_load_code_into_our_init(
    provider: ContainerProvider, rootfs: Path, tmp_path: Path
) -> None:
    """What runs before the rights are gone must be ours alone."""
    hostile = tmp_path / "hostile"
    shutil.copytree(rootfs, hostile, symlinks=True)
    library = next(iter(hostile.rglob("libc.so.6")))
    for name in ("intruder.so", "second-intruder.so"):
        shutil.copy(library, hostile / name)
    (hostile / "etc/ld.so.preload").write_text("/intruder.so\n")
    with an_engine_image(hostile, "ENV LD_PRELOAD=/second-intruder.so") as name:
        sandbox = await provider.create(EngineImage(name=name))
        assert b"intruder" not in Path(f"/proc/{sandbox.pid}/maps").read_bytes()
        assert await sandbox.read("/etc/ld.so.preload") == b"/intruder.so\n"
        await sandbox.close()


async def test_no_engine_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path, refused: Callable[[], None]
) -> None:
    monkeypatch.setattr(providers, "find_engine", lambda: "")
    monkeypatch.setattr(providers.shutil, "which", lambda name: None)
    with pytest.raises(NotCapable, match="apt-get install podman"):
        await ContainerProvider.open(state_dir=state_dir)
    refused()


async def test_silent_engine_and_missing_sdk_are_refused(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path, refused: Callable[[], None]
) -> None:
    with pytest.raises(NotCapable, match="no container engine answers"):
        await ContainerProvider.open(state_dir=state_dir, engine_url="unix:///no/such/socket")
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(NotCapable, match=r"artangram\[container\]"):
        engine.ContainerEngine.connect("unix:///no/such/socket", owner=state_dir)
    refused()


@pytest.fixture
def refused(provider: ContainerProvider, state_dir: Path) -> Callable[[], None]:
    """A refusal leaves nothing behind."""
    before = set((state_dir / "run").iterdir())

    def check() -> None:
        assert set((state_dir / "run").iterdir()) <= before

    return check
