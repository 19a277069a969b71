"""Directories to and from real sandboxes, in this process and over HTTP."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.orchestrator.client import TrajectoryHandle
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe
from integration.orchestrator.test_processes import a_client

pytestmark = [
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="no namespaces on this machine"
    ),
]

LARGE = 70 << 20
"""More than a file that is read or written at once may have."""


@pytest_asyncio.fixture(params=["embedded", "http"])
async def t(request: pytest.FixtureRequest) -> AsyncIterator[TrajectoryHandle]:
    async with (
        a_client(request.param) as client,
        client.trajectory(memory_mb=512, disk_mb=256) as trajectory,
    ):
        yield trajectory


async def test_a_directory_goes_in_and_comes_back(t: TrajectoryHandle, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run.sh").write_text("echo ran")
    (tree / "sub" / "run.sh").chmod(0o755)
    (tree / "large").write_bytes(os.urandom(1 << 20) * (LARGE >> 20))
    await t.upload(tree, "in")
    assert (
        await t.run(["sh", "-c", "in/sub/run.sh; wc -c < in/large"])
    ).stdout == f"ran\n{LARGE}\n"
    await t.download("in", tmp_path / "back")
    assert (tmp_path / "back" / "large").read_bytes() == (tree / "large").read_bytes()
    assert os.access(tmp_path / "back" / "sub" / "run.sh", os.X_OK)


async def test_one_file_is_enough(t: TrajectoryHandle, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    await t.upload(tmp_path / "a.txt")
    assert await t.read("a.txt") == b"one"
    await t.download("a.txt", tmp_path / "out")
    assert (tmp_path / "out" / "a.txt").read_text() == "one"


async def test_what_cannot_be_copied_is_told(t: TrajectoryHandle, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        await t.download("nowhere", tmp_path)
    with pytest.raises(OSError, match="upload to /proc/x failed"):
        await t.upload(tmp_path, "/proc/x")
    with pytest.raises(BadInput, match="does not exist"):
        await t.upload(tmp_path / "nowhere")


@pytest.mark.parametrize("link", ["/etc/passwd", "../../../etc/passwd"])
async def test_a_hostile_tree_does_not_get_out(
    t: TrajectoryHandle, tmp_path: Path, link: str
) -> None:
    await t.run(["sh", "-c", f"mkdir bad && ln -s {link} bad/link"])
    with pytest.raises(OSError, match="cannot be unpacked"):
        await t.download("bad", tmp_path / "out")
    assert not (tmp_path / "out" / "link").exists()
