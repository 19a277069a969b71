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
    unfinished = directory / f"step-{step:08d}{UNFINISHED}"
    unfinished.mkdir()
    try:
        write(unfinished)
        _flush(unfinished)
        place = directory / f"step-{step:08d}"
        if place.exists():
            # The same step twice, after a resume from the one before: the new one counts.
            place.rename(directory / f"old-{step:08d}{UNFINISHED}")
        unfinished.rename(place)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        problem = f"the checkpoint of step {step} could not be written: {error}"
        raise BadInput(str(directory), problem, "make room there, or name another place") from error
    _flush_entry(directory)
    for old in checkpoints(directory)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return place


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
