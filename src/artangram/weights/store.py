"""Versions of the weights at rest: a directory for each, published once and whole.

- A version appears by one rename when all its files are written: readers see all of it or nothing.
- A version is a model's directory: its publisher writes the files, in any format that engines
  read.
- Nothing here imports torch.
- In shared memory by default: publishing is a copy in RAM, and engines map the pages.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from artangram.core.errors import BadInput, InfraFailed
from artangram.weights.manifest import (
    BadVersion,
    Manifest,
    manifest_of,
    read_manifest,
    verify,
    write_manifest,
)

_UNFINISHED = ".unfinished-"


class StoreFull(InfraFailed):
    """There is no room for another version."""


class WeightStore:
    """See the module. One publisher; any number of readers, in any process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        for unfinished in root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(unfinished)  # Its writer is gone: there is one publisher.

    def __repr__(self) -> str:
        return f"<WeightStore {self.root}: versions {', '.join(map(str, self.versions()))}>"

    def versions(self) -> tuple[int, ...]:
        """Those that are whole, oldest first."""
        return tuple(sorted(int(path.name[1:]) for path in self.root.glob("v[0-9]*")))

    def path(self, version: int) -> Path:
        return self.root / f"v{version}"

    def publish_with(self, version: int, write: Callable[[Path], None]) -> Manifest:
        """Make the files that `write` puts into an empty directory appear as `version`."""
        if self.path(version).exists():
            raise BadInput("version", f"{version} is published", "give each version a new number")
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.root))
        try:
            write(unfinished)
            manifest = manifest_of(version, unfinished)
            if not manifest.num_bytes:
                raise BadInput("weights", f"version {version} has no files", "write some")
            write_manifest(manifest, unfinished)
            unfinished.rename(self.path(version))
        except OSError as error:
            free = shutil.disk_usage(self.root).free
            text = f"{self.root}: {error}; {free:,} bytes are free: make room, or name another root"
            raise StoreFull(text) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return manifest

    def verify(self, version: int) -> Manifest:
        """Read every byte. Raises `BadVersion` if anything is missing or differs."""
        manifest = read_manifest(self.path(version))
        if manifest.version != version:
            problem = f"{self.path(version)} says that it is version {manifest.version}"
            raise BadVersion(f"{problem}; publish the version again")
        verify(manifest, self.path(version))
        return manifest

    def remove(self, version: int) -> None:
        """Forget a version. It disappears at once; nothing happens if it is gone."""
        gone = self.root / f"{_UNFINISHED}v{version}"
        if self.path(version).exists():
            self.path(version).rename(gone)
            shutil.rmtree(gone)
