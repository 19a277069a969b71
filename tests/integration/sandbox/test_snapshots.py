"""Snapshots with names: over restarts, crashes and full disks."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from busy_machine import eventually

from artangram.sandbox import (
    Command,
    CreateFailed,
    HostImage,
    ImageError,
    NamespaceProvider,
    NotCapable,
    SandboxError,
    Snapshot,
    SnapshotTerms,
    TarImage,
)
from artangram.sandbox.namespace import rundir
from artangram.sandbox.namespace.snapshots import SnapshotStore

from .small_root import fill
from .snapshot_owner import NUM_FILES

pytestmark = pytest.mark.asyncio(loop_scope="package")

DEPS = SnapshotTerms(name="deps")


@asynccontextmanager
async def opened(state_dir: Path, keep_for: str = "the test") -> AsyncIterator[NamespaceProvider]:
    try:
        provider = await NamespaceProvider.open(state_dir=state_dir, keep_for=keep_for)
    except NotCapable as problem:
        if "another process" in str(problem):
            raise
        pytest.skip(str(problem))
    try:
        yield provider
    finally:
        await provider.close()


def layers(state_dir: Path) -> list[Path]:
    return list((state_dir / "snapshots").glob("*/layers/*"))


@pytest_asyncio.fixture(loop_scope="package")
async def own_dir(tmp_path: Path, provider: NamespaceProvider, state_dir: Path) -> Path:
    """A state directory of its own that need not build an init."""
    (tmp_path / "built").symlink_to(state_dir / "built")
    return tmp_path


async def test_a_named_snapshot_survives_a_restart_with_what_it_stands_on(own_dir: Path) -> None:
    async with opened(own_dir) as provider:
        first = await provider.create(HostImage())
        await first.write("base", b"1")
        second = await provider.create(await first.snapshot())
        await second.write("top", b"2")
        await second.snapshot(DEPS)
        await second.snapshot()
    assert len(layers(own_dir)) > 2
    async with opened(own_dir) as provider:
        assert len(layers(own_dir)) == 2, "only what the named one stands on is left"
        (listed,) = await provider.snapshots()
        assert (listed.name, listed.is_named) == ("deps", True)
        sibling = await provider.create(Snapshot(name="deps"))
        assert (await sibling.read("base"), await sibling.read("top")) == (b"1", b"2")
        assert (await sibling.run(Command(argv=("sh", "-c", "echo 3 > top")))).ok, "it owns them"
        assert (await provider.snapshots())[0].num_sandboxes == 1
        await provider.forget(Snapshot(name="deps"))
        assert await sibling.read("base") == b"1"
        await sibling.close()
        assert await eventually(lambda: layers(own_dir) == [])


async def test_names_are_kept_for_those_who_made_them(own_dir: Path) -> None:
    async with opened(own_dir, "one") as one, opened(own_dir, "other") as other:
        await (await one.create(HostImage())).snapshot(DEPS)
        assert await other.snapshots() == ()
        with pytest.raises(CreateFailed, match="no snapshot 'deps'"):
            await other.create(Snapshot(name="deps"))


async def test_two_processes_do_not_share_names(
    own_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "LOCK_PATIENCE_S", 0.1)
    async with opened(own_dir):
        with pytest.raises(NotCapable, match="another process has the snapshots of the test"):
            await NamespaceProvider.open(state_dir=own_dir, keep_for="the test")


def killed_in_a_snapshot(state_dir: Path, seed: int) -> int:
    """The number of the snapshot that was under way."""
    owner = [sys.executable, "-m", "integration.sandbox.snapshot_owner", str(state_dir)]
    process = subprocess.Popen(owner, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    with process.stdout as lines:
        number = [lines.readline() for _ in range(1 + seed)][-1]
        time.sleep(random.Random(seed).uniform(0, 0.05))
        process.kill()
        process.wait()
    return int(number)


@pytest.mark.parametrize("seed", range(4))
async def test_a_kill_in_the_middle_of_a_snapshot_leaves_a_whole_one_or_none(
    own_dir: Path, seed: int
) -> None:
    number = await asyncio.to_thread(killed_in_a_snapshot, own_dir, seed)
    async with opened(own_dir) as provider:
        assert list((own_dir / "snapshots").glob("*/*.record")) == []
        listed = await provider.snapshots()
        assert len(layers(own_dir)) == len(listed), "no half of a snapshot"
        assert listed or number == 0
        for one in listed:
            sibling = await provider.create(Snapshot(name=one.name))
            show = f"cd all; cat $(seq {NUM_FILES}) | sort -u; ls | wc -l"
            found = (await sibling.run(Command(argv=("sh", "-c", show)))).stdout.split()
            assert found in ([b"%d" % n, b"%d" % NUM_FILES] for n in (number, number - 1))


async def test_idle_ones_without_a_name_go_to_make_room_and_named_ones_do_not(
    own_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = SnapshotStore.__init__
    small = lambda *args, **more: made(*args, **more, most_bytes=5 << 20)  # noqa: E731
    monkeypatch.setattr(SnapshotStore, "__init__", small)
    brief = SnapshotTerms(keep_s=1000.0)
    async with opened(own_dir) as provider:
        sandbox = await provider.create(HostImage())
        await sandbox.write("file", bytes(2 << 20))
        old, used = await sandbox.snapshot(brief), await sandbox.snapshot(brief)
        sibling = await provider.create(used)
        await sandbox.snapshot(DEPS)
        assert {one.name for one in await provider.snapshots()} == {used.name, "deps"}
        assert f"snapshot {old.name} was forgotten: its room was needed" in caplog.text
        with pytest.raises(CreateFailed, match="its room was needed"):
            await provider.create(old)
        with pytest.raises(SandboxError, match="would take 6 MB of the 5 MB that they may; forget"):
            await sandbox.snapshot(SnapshotTerms(name="more"))
        assert await eventually(lambda: len(layers(own_dir)) == 2)
        assert await sibling.read("file") == bytes(2 << 20)


async def test_a_sandbox_keeps_its_snapshot_from_going(own_dir: Path) -> None:
    async with opened(own_dir) as provider:
        taken = await (await provider.create(HostImage())).snapshot(SnapshotTerms(keep_s=0.1))
        sibling = await provider.create(taken)
        await asyncio.sleep(0.3)  # three times as long as it may be idle
        assert (await provider.snapshots())[0].idle_s == 0
        await (await provider.create(taken)).close()
        await sibling.close()


async def test_a_named_snapshot_stands_on_the_image_it_was_made_from(
    own_dir: Path, tmp_path: Path
) -> None:
    image = tmp_path / "image.tar"
    root = tmp_path / "root"
    root.mkdir()
    fill(root, ("cat",))
    with tarfile.open(image, "w") as tar:
        tar.add(root, arcname=".")
    async with opened(own_dir) as provider:
        await (await provider.create(TarImage(path=str(image)))).snapshot(DEPS)
    async with opened(own_dir) as provider:
        await provider.create(Snapshot(name="deps"))
    (root / "new").write_text("x")
    with tarfile.open(image, "w") as tar:
        tar.add(root, arcname=".")
    async with opened(own_dir) as provider:
        with pytest.raises(ImageError, match="has changed since; make it again"):
            await provider.create(Snapshot(name="deps"))


async def test_snapshots_of_a_service_whose_directory_is_gone_are_removed(
    own_dir: Path, tmp_path: Path
) -> None:
    service = tmp_path / "service"
    service.mkdir()
    async with opened(own_dir, str(service / "agent.sock")) as provider:
        await (await provider.create(HostImage())).snapshot(DEPS)
    (kept,) = (own_dir / "snapshots").iterdir()
    rundir.sweep_kept(own_dir / "snapshots")
    assert kept.exists()
    service.rmdir()
    rundir.os.utime(kept, (0, 0))  # A young one might belong to a provider in birth.
    rundir.sweep_kept(own_dir / "snapshots")
    assert not kept.exists()
