"""Directories and large files of a trajectory's sandbox, as tar streams in pieces.

- A stream has no limit of size: it goes through the stdin or stdout of a `tar` in the sandbox.
- What comes out of a sandbox is hostile: no name leads out of the target directory, and devices,
  links that lead out and set-user-id bits are refused (the filter `data` of `tarfile`).
- One transfer is one action, with a lease of its own.
"""

import asyncio
import os
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.process import ProcessHandle
from artangram.orchestrator.records import ActionResult

PIECE_BYTES = 1 << 20
IN_MEMORY_BYTES = 8 << 20
"""A longer stream waits in a file."""

Start = Callable[[list[str]], Awaitable[ProcessHandle]]
"""Starts a program whose output is not dropped."""

_UNPACK = 'mkdir -p -- "$1" && exec tar -xf - --no-same-owner -C "$1"'
_PACK = """
if test -d "$1"; then exec tar -cf - -C "$1" .; fi
exec tar -cf - -C "$(dirname -- "$1")" -- "$(basename -- "$1")"
"""


async def upload(start: Start, source: Path, target: str) -> None:
    """Copy a file or what is in a directory of this machine into a directory of the sandbox."""
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as stream:
        await asyncio.to_thread(_pack, source, stream)
        process = await start(["sh", "-c", _UNPACK, "sh", target])
        try:
            while piece := await asyncio.to_thread(stream.read, PIECE_BYTES):
                await process.write(piece)
            await process.close_stdin()
        except BrokenPipeError:
            pass  # It has ended, and says why.
        except BaseException:
            await process.kill()
            raise
        _check(await process.wait(), f"upload to {target}")


async def download(start: Start, source: str, target: Path) -> None:
    """Copy a file or what is in a directory of the sandbox into a directory of this machine."""
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as stream:
        process = await start(["sh", "-c", _PACK, "sh", source])
        said = bytearray()
        try:
            async for piece in process:
                if piece.channel == "stdout":
                    await asyncio.to_thread(stream.write, piece.data)
                elif len(said) < PIECE_BYTES:
                    said += piece.data
        except BaseException:
            await process.kill()
            raise
        _check(await process.wait(), f"download of {source}", said.decode(errors="replace"))
        await asyncio.to_thread(_unpack, stream, target)


def _check(result: ActionResult, what: str, said: str = "") -> None:
    if result.outcome is Outcome.INFRA_FAILED:
        raise InfraFailed(f"{what}: {result.reason}")
    if not result.ok:
        words = (said or result.stderr).strip()[-500:] or result.reason
        raise OSError(f"{what} failed: {words}")


def _pack(source: Path, stream: IO[bytes]) -> None:
    if not source.exists():
        raise BadInput("source", f"{source} does not exist", "name a file or a directory")
    with tarfile.open(fileobj=stream, mode="w") as tar:
        names = sorted(os.listdir(source)) if source.is_dir() else [""]
        for name in names:
            tar.add(source / name, arcname=name or source.name)
    stream.seek(0)


def _unpack(stream: IO[bytes], target: Path) -> None:
    stream.seek(0)
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise OSError(f"what the sandbox sent cannot be unpacked: {error}") from error
