"""Build small archives for tests: plain tars, `docker save` archives, OCI layouts."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path


def tar_of(root: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root, arcname=".")
    return packed.getvalue()


def a_tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def a_file(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), data


def a_link(name: str, target: str, *, hard: bool = False) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = tarfile.LNKTYPE if hard else tarfile.SYMTYPE
    info.linkname = target
    return info, b""


def an_upper_layer() -> bytes:
    return a_tar(a_file("srv/.wh.old", b""), a_file("srv/new", b"new"), mode="w:gz")


def docker_archive(root: Path) -> bytes:
    manifest = json.dumps([{"Layers": ["base.tar", "upper.tar"]}]).encode()
    return a_tar(
        a_file("manifest.json", manifest),
        a_file("base.tar", tar_of(root)),
        a_file("upper.tar", an_upper_layer()),
    )


def oci_archive(root: Path) -> bytes:
    blobs: dict[str, bytes] = {}

    def blob(data: bytes) -> dict[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}"}

    layers = [blob(tar_of(root)), blob(an_upper_layer())]
    manifest = blob(json.dumps({"layers": layers}).encode())
    index = json.dumps({"manifests": [manifest]}).encode()
    return a_tar(
        a_file("oci-layout", b"{}"),
        a_file("index.json", index),
        *(a_file(name, data) for name, data in blobs.items()),
    )
