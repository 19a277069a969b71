"""What a layer of a snapshot keeps on its way to another node."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from artangram.sandbox import SandboxError
from artangram.sandbox.namespace.snapshotarchive import pack, unpacked

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="owners and attributes need root")


@needs_root
async def test_a_layer_arrives_as_it_was(tmp_path: Path) -> None:
    top, below = tmp_path / "top", tmp_path / "below"
    below.mkdir()
    (below / "below").write_text("2")
    (top / "dir").mkdir(parents=True)
    (top / "file").write_text("1")
    os.link(top / "file", top / "dir" / "same")
    os.symlink("../../etc/passwd", top / "link")
    os.mknod(top / "deleted", stat.S_IFCHR, 0)
    os.setxattr(top / "dir", "trusted.overlay.opaque", b"y")
    os.setxattr(top / "file", "user.bytes", b"\x00\xff")
    (top / "holes").touch()
    os.truncate(top / "holes", 1 << 30)
    os.chown(top / "file", 1_900_000_007, 1_900_000_007)
    os.chmod(top / "file", 0o4711)
    os.utime(top / "file", ns=(1, 1_234_567_890_123_456_789))
    archive = tmp_path / "s.tar"
    await pack(b"record", (str(top), str(below)), archive)
    assert archive.stat().st_size < 1 << 20
    for layer in (top, below):
        shutil.rmtree(layer)
    async with unpacked(archive) as (record, folder):
        assert record == b"record"
        check_top(folder / "top")
        assert (folder / "below" / "below").read_text() == "2"
    assert os.listdir(tmp_path) == ["s.tar"]


def check_top(there: Path) -> None:
    about = (there / "file").stat()
    assert about.st_ino == (there / "dir" / "same").stat().st_ino
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (1_900_000_007, 0o4711)
    assert about.st_mtime_ns == 1_234_567_890_123_456_789
    assert os.readlink(there / "link") == "../../etc/passwd"
    deleted = (there / "deleted").lstat()
    assert (stat.S_ISCHR(deleted.st_mode), deleted.st_rdev) == (True, 0)
    assert os.getxattr(there / "dir", "trusted.overlay.opaque") == b"y"
    assert os.getxattr(there / "file", "user.bytes") == b"\x00\xff"
    holes = (there / "holes").stat()
    assert (holes.st_size, holes.st_blocks) == (1 << 30, 0)


async def test_what_is_no_archive_leaves_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "s.tar"
    archive.write_bytes(b"nonsense" * 1000)
    with pytest.raises(SandboxError, match=r"s\.tar: "):
        async with unpacked(archive):
            pass
    assert os.listdir(tmp_path) == ["s.tar"]
