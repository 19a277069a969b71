"""The files of a published version, so that a bad one is found before an engine reads it.

The manifest is written last and names every file with its size and SHA-256: a directory without
one was never finished, and one whose files differ from it is refused.
"""

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.core.errors import InfraFailed

MANIFEST_NAME = "manifest.json"


class BadVersion(InfraFailed):
    """A version that is not there, not whole, or not what was published."""


class FileEntry(Struct, frozen=True, kw_only=True):
    name: str
    num_bytes: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    version: int
    files: tuple[FileEntry, ...]

    @property
    def num_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self.files)


def manifest_of(version: int, directory: Path) -> Manifest:
    """Of the files that lie in `directory` now."""
    files = sorted(path for path in directory.iterdir() if path.name != MANIFEST_NAME)
    return Manifest(version=version, files=tuple(_entry(path) for path in files))


def write_manifest(manifest: Manifest, directory: Path) -> None:
    (directory / MANIFEST_NAME).write_bytes(msgspec.json.encode(manifest))


def read_manifest(directory: Path) -> Manifest:
    """Raises `BadVersion`."""
    path = directory / MANIFEST_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise BadVersion(f"{path}: {error.strerror}; publish the version again") from error
    except msgspec.DecodeError as error:
        raise BadVersion(f"{path}: {error}; publish the version again") from error


def verify(manifest: Manifest, directory: Path) -> None:
    """Raise `BadVersion` unless every file is there and is what was published, and no other is."""
    for entry in manifest.files:
        path = directory / entry.name
        try:
            found = _entry(path)
        except OSError as error:
            raise BadVersion(f"{path}: {error.strerror}; publish the version again") from error
        if found != entry:
            raise BadVersion(f"{path}: is not what was published; publish the version again")
    known = {MANIFEST_NAME, *(entry.name for entry in manifest.files)}
    # Engines read every file of weights that they find.
    for path in directory.iterdir():
        if path.name not in known:
            raise BadVersion(f"{path}: was not published; publish the version again")


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(name=path.name, num_bytes=path.stat().st_size, sha256=digest)
