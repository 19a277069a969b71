"""A snapshot as one file, on its way to another node: a tar of its record and its layers.

- GNU tar writes and reads it, because the layers hold what Python's own leaves out: attributes of
  overlay, deletions (character devices 0:0), holes in files.
- The layers are copies that no program changes any more. An archive is used whole or not at all.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from artangram.aio import uncancelled
from artangram.sandbox.errors import SandboxError

_RECORD = "record"
_KEPT = ("--xattrs", "--xattrs-include=*", "--numeric-owner")


async def pack(record: bytes, layers: Sequence[str], archive: Path) -> None:
    """Write them to the new file `archive`. Raises `SandboxError`."""
    paths = [Path(layer) for layer in layers]
    where = [word for path in paths for word in ("--directory", str(path.parent), path.name)]
    async with _folder(archive) as folder:
        (folder / _RECORD).write_bytes(record)
        whole = folder / "whole.tar"
        how = ("--create", "--format=posix", "--sparse", *_KEPT)
        await _tar(*how, file=whole, at=folder, of=(_RECORD, *where))
        whole.rename(archive)


@asynccontextmanager
async def unpacked(archive: Path) -> AsyncIterator[tuple[bytes, Path]]:
    """The record, and a directory with the layers by their names, which ends with the block.

    Raises `SandboxError`.
    """
    async with _folder(archive) as folder:
        await _tar("--extract", "--preserve-permissions", *_KEPT, file=archive, at=folder)
        try:
            record = (folder / _RECORD).read_bytes()
        except OSError as error:
            raise SandboxError(f"{archive.name} is not the archive of a snapshot") from error
        yield record, folder


@asynccontextmanager
async def _folder(archive: Path) -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="moving-", dir=archive.parent))
    try:
        yield folder
    finally:
        await uncancelled(asyncio.to_thread(shutil.rmtree, folder, True))


async def _tar(*options: str, file: Path, at: Path, of: Sequence[str] = ()) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *("tar", *options, "--file", str(file), "--directory", str(at), *of),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise SandboxError("snapshots travel as GNU tar has them; install it here") from error
    try:
        _, words = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await uncancelled(process.wait())
        raise
    if process.returncode != 0:
        last = words.decode(errors="replace").strip().split("\n")[-1]
        raise SandboxError(f"{file.name}: {last or f'tar ended with {process.returncode}'}")
