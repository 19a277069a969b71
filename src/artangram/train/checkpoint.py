"""Checkpoints: a directory per step that is there whole or not at all.

- A checkpoint is written beside its place, flushed to disk, and moved there by one rename. What
  was there before is removed only after that.
- `latest` trusts only what was finished: a leftover of a crash is never read, and is swept away.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from artangram.core.errors import BadInput

UNFINISHED = ".unfinished"
KEPT = 2
"""Checkpoints: should the newest be unreadable, there is the one before."""


def save(directory: Path, step: int, *, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a directory and make it the checkpoint of `step`; keep the newest ones."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    place = directory / f"step-{step:08d}"
    put(place, write=write)
    for old in checkpoints(directory)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def put(place: Path, *, write: Callable[[Path], None]) -> None:
    """Let `write` fill a directory and move it to its place, flushed. Raises `BadInput`."""
    unfinished = place.with_name(f"{place.name}{UNFINISHED}")
    before = place.with_name(f"old-{place.name}{UNFINISHED}")
    for left in (unfinished, before):
        shutil.rmtree(left, ignore_errors=True)
    unfinished.mkdir()
    try:
        write(unfinished)
        _flush(unfinished)
        if place.exists():
            # The same step twice, after a resume from the one before: the new one counts.
            place.rename(before)
        unfinished.rename(place)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        problem = f"{place.name} could not be written: {error}"
        fix = "make room there, or name another place"
        raise BadInput(str(place.parent), problem, fix) from error
    _flush_entry(place.parent)
    shutil.rmtree(before, ignore_errors=True)


def checkpoints(directory: Path) -> list[Path]:
    """The finished ones, oldest first."""
    return sorted(p for p in directory.glob("step-*") if not p.name.endswith(UNFINISHED))


def latest(directory: Path) -> Path:
    """The newest checkpoint. Raises `BadInput` without one."""
    found = checkpoints(directory)
    if not found:
        raise BadInput(str(directory), "holds no checkpoint", "start without --resume")
    return found[-1]


def sweep(directory: Path) -> None:
    """Remove what a crash left unfinished."""
    for path in directory.glob(f"*{UNFINISHED}"):
        shutil.rmtree(path, ignore_errors=True)


def _flush(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            _flush_entry(path)
    _flush_entry(directory)


def _flush_entry(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
