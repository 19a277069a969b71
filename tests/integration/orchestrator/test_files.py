"""What there is in a sandbox, and files of any size: embedded and over HTTP."""

import errno
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.orchestrator import trajectory
from artangram.orchestrator.client import TrajectoryHandle
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe
from artangram.sandbox.protocol import MAX_READ_BYTES
from integration.orchestrator.test_user import both_ways

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="no namespaces on this machine"
    ),
]


@pytest_asyncio.fixture(params=["embedded", "http"], scope="module", loop_scope="module")
async def t(request: pytest.FixtureRequest) -> AsyncIterator[TrajectoryHandle]:
    async with (
        both_ways(request.param) as client,
        client.trajectory(memory_mb=600, disk_mb=300, workdir="/testbed") as t,
    ):
        yield t


async def test_a_directory_is_listed_and_changed(t: TrajectoryHandle) -> None:
    await t.write("sub/a b", "12345")
    await t.run(["sh", "-c", 'ln -s nowhere sub/link; mkfifo sub/pipe; touch "sub/two\nlines"'])
    await t.mkdir("sub/deep/er")
    found = {one.name: (one.kind, one.size_bytes) for one in await t.list("sub")}
    assert found["a b"] == ("file", 5)
    assert found["link"][0] == "link"
    assert found["pipe"][0] == "other"
    assert found["two\nlines"] == ("file", 0)
    assert found["deep"][0] == "directory"
    assert len(found) == 5
    about = await t.stat("sub/a b")
    assert (about.name, about.mode, about.kind) == ("a b", 0o644, "file")
    assert await t.exists("sub/link")
    await t.move("sub/a b", "c")
    assert await t.read("c") == b"12345"
    assert not await t.exists("sub/a b")
    await t.remove("c")
    await t.remove("sub", recursive=True)
    assert not await t.exists("sub")


async def test_what_cannot_be_done_is_the_error_of_python(t: TrajectoryHandle) -> None:
    await t.write("file", "1")
    await t.write("full/file", "1")
    with pytest.raises(FileNotFoundError):
        await t.stat("no")
    with pytest.raises(FileNotFoundError):
        await t.list("no")
    with pytest.raises(NotADirectoryError):
        await t.list("file")
    with pytest.raises(FileExistsError):
        await t.mkdir("file")
    with pytest.raises(OSError, match="not empty") as full:
        await t.remove("full")
    assert full.value.errno == errno.ENOTEMPTY
    with pytest.raises(PermissionError):
        await t.remove("/etc/passwd")
    assert not await t.exists("file/below")


async def test_files_of_any_size_go_both_ways(
    t: TrajectoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory, "MAX_READ_BYTES", 1 << 20)
    large = bytes(range(256)) * 5000
    await t.write("new/large", large)
    assert (await t.stat("new/large")).size_bytes == len(large)
    with pytest.raises(OSError, match="large") as too_large:
        await t.read("new/large", max_bytes=1 << 20)
    assert too_large.value.errno == errno.EFBIG
    assert await t.read("new/large", max_bytes=len(large)) == large
    with pytest.raises(OSError, match="large"):
        await t.read("new/large", max_bytes=len(large) - 1)


async def test_a_command_reads_as_much_stdin_as_travels(t: TrajectoryHandle) -> None:
    counted = await t.run(["wc", "-c"], stdin=b"x" * MAX_READ_BYTES)
    assert counted.stdout.strip() == str(MAX_READ_BYTES)
    with pytest.raises(BadInput, match="stdin"):
        await t.run(["wc", "-c"], stdin=b"x" * (MAX_READ_BYTES + 1))
