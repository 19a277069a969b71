"""Turn any image of the protocol into one the engine has, and what to show beside it."""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from artangram.sandbox.container.engine import ContainerEngine
from artangram.sandbox.namespace import images
from artangram.sandbox.protocol import EngineImage, Image


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBase:
    """`binds` are read-only directories of the machine."""

    image: str
    binds: tuple[tuple[str, str], ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)


def prepare(image: Image, engine: ContainerEngine, *, cache_dir: Path, name: str) -> EngineBase:
    """May take long: archives are unpacked, and the engine copies what it imports.

    All but an `EngineImage` is imported under a name made of `name`, and the caller's to remove.
    """
    if isinstance(image, EngineImage):
        return EngineBase(image=engine.find_image(image.name, pull=image.pull))
    base = images.prepare(image, cache_dir=cache_dir)
    with tempfile.TemporaryDirectory(prefix="artangram-") as directory:
        archive = Path(directory) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(base.layers[-1], arcname=".")
        imported = engine.import_image(archive, name=name)
    return EngineBase(image=imported, binds=base.binds, files=base.files)
