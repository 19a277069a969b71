"""Unpacking root file systems: once, in order, and never outside.

Async like its neighbours: pytest keeps one event loop for the package, and a synchronous test
before them leaves a second one unclosed.
"""

# ruff: noqa: ASYNC240 - a test may block

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from artangram.sandbox import ImageError
from artangram.sandbox.namespace.archive import unpack

from .archives import a_file, a_link, a_tar, tar_of

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_plain_tar_is_unpacked_once(rootfs: Path, tmp_path: Path) -> None:
    archive = tmp_path / "plain.tar"
    archive.write_bytes(tar_of(rootfs))
    first = unpack(archive, cache_dir=tmp_path / "cache")
    before = first.stat().st_mtime_ns
    assert unpack(archive, cache_dir=tmp_path / "cache").stat().st_mtime_ns == before
    assert list((tmp_path / "cache").iterdir()) == [first]


@pytest.mark.parametrize(
    "members",
    [
        [a_file("../evil")],
        [a_link("out", "/"), a_file("out/tmp/artangram-evil")],
        [a_link("out", "../.."), a_file("out/evil")],
        [a_link("out", "../../../secret", hard=True), a_file("out")],
        [a_link("out", "../../.."), a_file("out/.wh.secret")],
    ],
    ids=["climb", "absolute link", "relative link", "hard link", "deletion through a link"],
)
async def test_hostile_archive_writes_nothing_outside(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    (tmp_path / "secret").write_text("s")
    archive = tmp_path / "evil.tar"
    manifest = json.dumps([{"Layers": ["0.tar", "1.tar"]}]).encode()
    layers = [a_tar(*members[:-1]), a_tar(members[-1])]
    archive.write_bytes(
        a_tar(
            a_file("manifest.json", manifest),
            *(a_file(f"{index}.tar", layer) for index, layer in enumerate(layers)),
        )
    )
    with pytest.raises(ImageError):
        unpack(archive, cache_dir=tmp_path / "cache")
    assert (tmp_path / "secret").read_text() == "s"
    assert list(tmp_path.rglob("evil")) == []
    assert not Path("/tmp/artangram-evil").exists()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("way", ["{secret}", "folder/secret"])
async def test_hard_links_lead_to_files_of_the_image_only(tmp_path: Path, way: str) -> None:
    """A link to a file outside would show it inside; what is unpacked over it would replace it."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    other = way.format(secret=secret)
    members = [a_link("folder", str(tmp_path)), a_link("out", other, hard=True), a_file("out")]
    (tmp_path / "evil.tar").write_bytes(a_tar(*members))
    with pytest.raises(ImageError):
        unpack(tmp_path / "evil.tar", cache_dir=tmp_path / "cache")
    assert (secret.read_text(), secret.stat().st_nlink) == ("s", 1)


async def test_a_file_replaced_by_a_layer_keeps_its_other_name(tmp_path: Path) -> None:
    base = a_tar(a_file("one", b"old"), a_link("two", "one", hard=True))
    manifest = json.dumps([{"Layers": ["0.tar", "1.tar"]}]).encode()
    (tmp_path / "image.tar").write_bytes(
        a_tar(
            a_file("manifest.json", manifest),
            a_file("0.tar", base),
            a_file("1.tar", a_tar(a_file("one", b"new"))),
        )
    )
    root = unpack(tmp_path / "image.tar", cache_dir=tmp_path / "cache")
    assert ((root / "one").read_text(), (root / "two").read_text()) == ("new", "old")


async def test_devices_and_set_user_id_bits_are_left_out(tmp_path: Path) -> None:
    device = tarfile.TarInfo("mem")
    device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 1
    setuid, data = a_file("su")
    setuid.mode = 0o4755
    archive = tmp_path / "image.tar"
    archive.write_bytes(a_tar((device, b""), (setuid, data)))
    root = unpack(archive, cache_dir=tmp_path / "cache")
    assert not (root / "mem").exists()
    assert (root / "su").stat().st_mode & 0o6000 == 0


def oci(index: object, **blobs: bytes) -> bytes:
    return a_tar(
        a_file("oci-layout", b"{}"),
        a_file("index.json", json.dumps(index).encode()),
        *(a_file(f"blobs/sha256/{name}", data) for name, data in blobs.items()),
    )


LOOP = {"manifests": [{"digest": "sha256:a"}]}
PACKED = [a_tar(a_file("a", b"x" * 100_000), mode=f"w:{way}") for way in ("gz", "bz2", "xz")]
WHOLE = PACKED[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive at all",
        *(whole[: len(whole) // 2] for whole in PACKED),
        WHOLE[:40] + b"\xff" * 40 + WHOLE[80:],
        a_tar(a_file("manifest.json", b"[]")),
        a_tar(a_file("manifest.json", b"7")),
        a_tar(a_file("manifest.json", b'[{"Layers": 7}]')),
        a_tar(a_file("manifest.json", b'[{"Layers": [7]}]')),
        a_tar(a_file("manifest.json", b"[" * 100_000)),
        a_tar(a_file("manifest.json", b'[{"Layers": ["l"]}]'), a_file("l", WHOLE[:100])),
        oci({"manifests": []}),
        oci([]),
        oci(LOOP, a=json.dumps(LOOP).encode()),
        oci(LOOP, a=b'{"layers": [{}]}'),
    ],
    ids=lambda data: f"{len(data)} bytes",
)
async def test_a_broken_archive_is_an_image_error_and_leaves_nothing(
    tmp_path: Path, data: bytes
) -> None:
    archive = tmp_path / "broken.tar"
    archive.write_bytes(data)
    with pytest.raises(ImageError, match=r"cannot unpack broken.tar|the archive has no"):
        unpack(archive, cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
