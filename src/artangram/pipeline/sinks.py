"""Where the numbers of a run go beside its own file: TensorBoard, Weights & Biases, Trackio.

All are optional. TensorBoard's files are written whenever it is installed; the others when the run
names them, and where they send things is their own affair (`WANDB_MODE=offline`, `TRACKIO_DIR`).
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from artangram.core.errors import BadInput

TRACKERS = ("wandb", "trackio")


class MetricsSink(Protocol):
    def add(self, values: Mapping[str, float], *, step: int) -> None: ...

    def close(self) -> None: ...


def sinks(directory: Path, *, run: str, trackers: Sequence[str] = ()) -> list[MetricsSink]:
    """What is installed, and what was asked for. Raises `BadInput` when that is missing."""
    found: list[MetricsSink] = [_Tracker(name, directory, run=run) for name in trackers]
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return found
    return [*found, _Board(SummaryWriter(str(directory / "tensorboard")))]


class _Board:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def add(self, values: Mapping[str, float], *, step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Tracker:
    """Weights & Biases, and trackers with the same interface."""

    def __init__(self, name: str, directory: Path, *, run: str) -> None:
        try:
            self._tracker: Any = import_module(name)
        except ImportError as error:
            raise BadInput(
                "report_to", f"{name} is not installed", f"pip install {name}"
            ) from error
        place = {"dir": str(directory)} if name == "wandb" else {}
        self._tracker.init(project="artangram", name=run, **place)

    def add(self, values: Mapping[str, float], *, step: int) -> None:
        self._tracker.log(dict(values), step=step)

    def close(self) -> None:
        self._tracker.finish()
