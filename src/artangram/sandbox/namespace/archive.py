"""Unpack a root file system: a plain tar, a `docker save` archive or an OCI layout.

- Unpacked once per content, under a name made from it, and moved into place when complete.
- Nothing is written outside the target, whatever names or links the archive holds; device nodes
  and set-user-id bits are left out.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any

from artangram.sandbox.errors import ImageError

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_UNREADABLE = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError)
_MISSHAPEN = (LookupError, ValueError, TypeError, AttributeError, RecursionError)
BROKEN = _UNREADABLE + _MISSHAPEN
"""What a damaged archive, or one whose manifests have another shape, raises while it is read."""


def unpack(archive: Path, *, cache_dir: Path, name: str = "") -> Path:
    """The directory that holds the archive's files; `name` is what errors call it."""
    name = name or archive.name
    if not archive.is_file():
        raise ImageError(f"{name} is not a file")
    target = cache_dir / _digest(archive)
    if target.exists():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=cache_dir))
    try:
        root = partial / "root"
        root.mkdir(mode=0o755)
        with tarfile.open(archive) as tar:
            _unpack_any(tar, root)
        move_into_place(root, target)
    except BROKEN as error:
        problem = str(error) or type(error).__name__
        raise ImageError(f"cannot unpack {name}: {problem}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def move_into_place(root: Path, target: Path) -> None:
    """Rename; a second process with the same bytes throws its own copy away."""
    try:
        root.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(root, ignore_errors=True)


def _unpack_any(tar: tarfile.TarFile, root: Path) -> None:
    names = {PurePosixPath(name).as_posix() for name in tar.getnames()}
    if "manifest.json" in names:
        layers = _json(tar, "manifest.json")[0]["Layers"]
    elif "index.json" in names and "oci-layout" in names:
        manifest = _blob(tar, _json(tar, "index.json")["manifests"][0])
        layers = [_blob_name(layer) for layer in manifest["layers"]]
    else:
        _extract(tar, root)
        return
    for name in layers:
        with tarfile.open(fileobj=_file(tar, name)) as layer:
            _apply_layer(layer, root)


def _file(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    for candidate in (name, "./" + name):
        try:
            found = tar.extractfile(candidate)
        except KeyError:
            continue
        if found is not None:
            return found
    raise ImageError(f"the archive has no {name}")


def _json(tar: tarfile.TarFile, name: str) -> Any:
    return json.load(_file(tar, name))


def _blob_name(descriptor: dict[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def _blob(tar: tarfile.TarFile, descriptor: dict[str, Any]) -> Any:
    content = _json(tar, _blob_name(descriptor))
    if "manifests" in content:  # an index of platforms: the first one
        return _blob(tar, content["manifests"][0])
    return content


def _apply_layer(layer: tarfile.TarFile, root: Path) -> None:
    """What this layer hides goes first, so that it cannot hide what the layer brings."""
    for member in layer.getmembers():
        path = PurePosixPath(member.name)
        if not path.name.startswith(WHITEOUT):
            continue
        folder = _inside(root, path.parent)
        if path.name == OPAQUE:
            for child in folder.iterdir() if folder.is_dir() else ():
                _remove(child)
        else:
            _remove(folder / path.name.removeprefix(WHITEOUT))
    _extract(layer, root)


def _extract(tar: tarfile.TarFile, root: Path) -> None:
    for member in tar.getmembers():
        path = PurePosixPath(member.name)
        if member.isdev() or path.name.startswith(WHITEOUT):
            continue
        _make_room(member, root)
        if member.islnk():
            member = _linked_inside(member, root)
        # The "tar" filter refuses every path that ends up outside the target.
        tar.extract(member, root, filter="tar", numeric_owner=True)


def _linked_inside(member: tarfile.TarInfo, root: Path) -> tarfile.TarInfo:
    """A hard link whose other name is in the image, too: the filter looks at the new name only."""
    other = PurePosixPath(member.linkname)
    path = _inside(root, other.parent) / other.name
    return member.replace(linkname=os.path.relpath(path, root.resolve()), deep=False)


def _make_room(member: tarfile.TarInfo, root: Path) -> None:
    """A later layer may put a file where an earlier one had another, a link or a directory.

    Never into the file that is there: that may have other names, which keep what they have.
    """
    target = _inside(root, PurePosixPath(member.name).parent) / PurePosixPath(member.name).name
    if member.isdir() and target.is_dir():
        return  # also when it is a link to one: `lib -> usr/lib` stays
    _remove(target)


def _inside(root: Path, relative: PurePosixPath) -> Path:
    where = Path(os.path.realpath(root / str(relative).lstrip("/")))
    if where != root.resolve() and root.resolve() not in where.parents:
        raise ImageError(f"{relative} leads out of the image")
    return where


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
