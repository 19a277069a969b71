"""What a run says of itself: one JSON line per step, and TensorBoard's files if it is installed.

A resumed run forgets the lines of steps that it makes again, so that every step has one line.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.pipeline.meter import Usage
from artangram.train.tally import Report

FILE_NAME = "metrics.jsonl"


class StepRecord(Struct, frozen=True, kw_only=True):
    """One step, as a line of the file."""

    step: int
    at_s: float
    """Since the run began, restarts not counted."""
    collect_s: float
    """The trainer waited for its batch."""
    train_s: float
    publish_s: float
    """From the end of training to the last engine with the new weights."""
    exposed_s: float
    """Of that, engines stood still."""
    report: Report
    ended: dict[str, int]
    """Trajectories since the run began, by how they ended."""
    lost_engines: int = 0
    usage: Usage = Usage()
    """What the house did for the run during the step."""


class Metrics:
    """The file of a run."""

    def __init__(self, directory: Path, *, after_step: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        kept = [r for r in read(self.path) if r.step <= after_step] if after_step else []
        self.began_s = kept[-1].at_s if kept else 0.0
        self.path.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in kept))
        self._board = _board(directory)

    def add(self, record: StepRecord) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        if self._board is not None:
            for name, value in _scalars(record).items():
                self._board.add_scalar(name, value, record.step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def read(path: Path) -> list[StepRecord]:
    """The records of a file; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line, type=StepRecord) for line in lines[:-1] if line]


def _scalars(record: StepRecord) -> dict[str, float]:
    report = record.report
    found = {f"reward/{task}": value for task, value in report.rewards.items()}
    found |= {"reward": report.reward, "train/loss": report.loss, "train/entropy": report.entropy}
    found |= {"train/stale_share": report.stale_share, "run/collect_s": record.collect_s}
    return found


def _board(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(directory / "tensorboard"))
