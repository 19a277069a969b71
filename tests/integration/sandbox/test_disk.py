"""Files on disk instead of in memory: size, quota, snapshots, and nothing left behind."""

import asyncio
import glob
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.orchestrator.local import local
from artangram.sandbox import (
    Command,
    HostImage,
    IsolationLevel,
    Limits,
    NamespaceProvider,
    NotCapable,
    PlainProvider,
)
from artangram.sandbox.namespace.loopdisk import has_disks
from artangram.sandbox.probe import probe


def can_have_disks() -> bool:
    return has_disks() and probe().level >= IsolationLevel.CGROUPS


pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not can_have_disks(), reason="no loop devices or no mkfs.ext4"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[NamespaceProvider]:
    made = await NamespaceProvider.open()
    yield made
    await made.close()


def on_disk(disk_mb: int, memory_mb: int = 256) -> Limits:
    return Limits.sized(memory_mb, disk_mb=disk_mb, processes=64, network=False, storage="disk")


def num_attached() -> int:
    """Loop devices whose file has no name: ours have none."""
    files = [Path(path).read_text() for path in glob.glob("/sys/block/loop*/loop/backing_file")]
    return sum("/disks/disk-" in file for file in files)


async def test_two_gigabytes_are_built_within_256_mb_of_memory() -> None:
    async with (
        local() as client,
        client.trajectory(memory_mb=256, disk_mb=2500, storage="disk") as t,
    ):
        build = "dd if=/dev/zero of=out bs=1M count=2048 2>/dev/null && stat -c %s out"
        result = await t.run(["sh", "-c", build], timeout_s=120)
        assert result.stdout == f"{2 << 30}\n", (result.reason, result.stderr)
        assert (await t.run(["true"])).ok


async def test_the_size_is_a_quota_and_nothing_is_left(provider: NamespaceProvider) -> None:
    before = num_attached()
    box = await provider.create(HostImage(), limits=on_disk(64))
    assert num_attached() == before + 1
    fill = "dd if=/dev/zero of=f bs=1M count=100; stat -c %s f; touch more/or/less; echo a > b"
    told = await box.run(Command(argv=("sh", "-c", fill)))
    assert b"No space left" in told.stderr
    assert int(told.stdout.split()[0]) < 64 << 20
    many = await box.run(Command(argv=("sh", "-c", "rm f; for i in $(seq 9000); do : > $i; done")))
    assert b"No space left" in many.stderr
    assert (await box.run(Command(argv=("true",)))).ok
    await box.close()
    for _ in range(100):
        if num_attached() == before:
            break
        await asyncio.sleep(0.05)
    assert num_attached() == before
    assert list((provider.run_path / "disks").iterdir()) == []


async def test_snapshots_go_between_disk_and_memory(provider: NamespaceProvider) -> None:
    box = await provider.create(HostImage(), limits=on_disk(64))
    await box.write("a", b"1")
    snapshot = await box.snapshot()
    for limits in (Limits(), on_disk(32)):
        sibling = await provider.create(snapshot, limits=limits)
        assert await sibling.read("a") == b"1"
        await sibling.close()
    await box.close()


async def test_what_cannot_be_had_is_refused(provider: NamespaceProvider, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="disk_mb"):
        on_disk(1)
    with pytest.raises(BadInput, match="storage='disk'"):
        Limits(memory_mb=64, disk_mb=128)
    box = await provider.create(HostImage(), limits=on_disk(64))
    with pytest.raises(BadInput, match="one limit"):
        await box.run(Command(argv=("true",), disk_mb=32))
    await box.close()
    plain = await PlainProvider.open(level=IsolationLevel.PROCESS, state_dir=tmp_path)
    with pytest.raises(NotCapable):
        await plain.create(HostImage(), limits=on_disk(64))
    await plain.close()
