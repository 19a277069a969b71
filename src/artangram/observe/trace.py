"""The trace: what trajectories did, or will be made to do, as JSON lines (plain or compressed).

- Line 1 is the header `{"artangram_trace": 1, "name": ..., "train_s": ...}`; every further line is
  one trajectory. Steps never decrease from line to line and trajectory ids are unique, so a reader
  can stream a file of any length; it keeps the ids, not the trajectories.
- A turn thinks for `think_s`, then runs its actions one after the other.
- Whatever is wrong with a file is one `BadFile`.
"""

import gzip
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Generator, Iterable, Iterator
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import NoReturn, Protocol, Self

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.ids import TrajectoryId
from artangram.core.scheduling.action import MOST_WORK_S
from artangram.observe.badfile import DECODE_ERRORS, AnyPath, BadFile, in_our_words
from artangram.observe.duplicatekeys import refuse_twice
from artangram.observe.traceline import (
    LineDecoder,
    Seconds,
    TraceAction,
    TraceTrajectory,
    TraceTurn,
    encode_line,
)

__all__ = [
    "BadFile",
    "Trace",
    "TraceAction",
    "TraceReader",
    "TraceSource",
    "TraceTrajectory",
    "TraceTurn",
    "open_trace",
    "read_trace",
    "write_trace",
]

VERSION = 1
GZIP = b"\x1f\x8b"
"""The first bytes of every compressed file."""


class Trace(Struct, frozen=True, kw_only=True):
    """A whole trace in memory."""

    name: str
    train_s: float
    """How long the trainer takes between the end of one step and the beginning of the next."""
    trajectories: tuple[TraceTrajectory, ...]


class TraceSource(Protocol):
    """What a simulation reads: a `Trace`, or a file or generator that yields it piece by piece."""

    @property
    def name(self) -> str: ...
    @property
    def train_s(self) -> float: ...
    @property
    def trajectories(self) -> Iterable[TraceTrajectory]: ...


class _Header(Struct, forbid_unknown_fields=True):
    artangram_trace: int
    name: str = ""
    train_s: Seconds = 0.0


def read_trace(path: AnyPath) -> Trace:
    """The whole trace of a file. Raises `BadFile`."""
    with open_trace(path) as reader:
        return Trace(
            name=reader.name, train_s=reader.train_s, trajectories=tuple(reader.trajectories)
        )


def open_trace(path: AnyPath) -> "TraceReader":
    """A trace to be read piece by piece; close it or use `with`. Raises `BadFile`."""
    return TraceReader(path)


class TraceReader:
    """A trace file being read: the header at once, trajectories in file order and only once."""

    def __init__(self, path: AnyPath) -> None:
        self._path = path
        self._line = 0
        self._decoder = LineDecoder()
        self._order = _Order()
        self._lines = self._read_lines()
        header = self._header()
        self.name = header.name
        self.train_s = header.train_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TraceReader {self._path}: line {self._line}>"

    @property
    def line(self) -> int:
        """The number of the last line read, from 1."""
        return self._line

    def close(self) -> None:
        """Close the file; iteration ends."""
        self._lines.close()

    @property
    def trajectories(self) -> Iterator[TraceTrajectory]:
        """The trajectories not read yet. Raises `BadFile` at the first line that is wrong."""
        for line in self._lines:
            try:
                trajectory = self._decoder.decode(line)
                self._order.check(trajectory)
            except BadInput as error:
                self._refuse(error)
            yield trajectory
        if not self._order.any:
            self._refuse(
                BadInput("trajectories", "the file has none", "add one line per trajectory")
            )

    def _header(self) -> _Header:
        line = next(self._lines, None)
        fix = f'begin with {{"artangram_trace": {VERSION}, "name": "...", "train_s": 60}}'
        if line is None:
            self._refuse(BadInput("artangram_trace", "the file is empty", fix))
        line = line.removeprefix(BOM_UTF8)
        try:
            header = msgspec.json.decode(line, type=_Header)
            refuse_twice(line, msgspec.json.decode(line))
        except DECODE_ERRORS as error:
            complaint = in_our_words(error, lambda _: list(_Header.__struct_fields__))
            self._refuse(BadInput(complaint.field, complaint.problem, fix))
        except BadInput as error:
            self._refuse(error)
        if header.artangram_trace != VERSION:
            problem = f"version {header.artangram_trace} is unknown"
            self._refuse(BadInput("artangram_trace", problem, f"this reads version {VERSION}"))
        return header

    def _read_lines(self) -> Generator[bytes, None, None]:
        """Lines that are not blank. `_line` is the number of the last one."""
        try:
            with open(self._path, "rb") as plain, _unpacked(plain) as file:
                for self._line, line in enumerate(file, start=1):
                    if not line.isspace():
                        yield line
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or str(error)
            fix = "name a whole and readable .jsonl or .jsonl.gz file"
            self._refuse(BadInput("file", why.lower(), fix))

    def _refuse(self, complaint: BadInput) -> NoReturn:
        raise BadFile(self._path, complaint, line=self._line) from None


def write_trace(path: AnyPath, trace: TraceSource) -> None:
    """Write `trace`, compressed if `path` ends in `.gz`. The file appears only when complete.

    Raises `BadInput` for a trace that could not be read back: no trajectories, steps out of order,
    times beyond any clock.
    """
    target = Path(path)
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as plain:
            if target.suffix == ".gz":
                # No time stamp: the same trace gives the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as packed:
                    packed.writelines(_encoded(trace))
            else:
                plain.writelines(_encoded(trace))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _encoded(trace: TraceSource) -> Iterator[bytes]:
    order = _Order()
    if not _is_time(trace.train_s):
        raise BadInput("train_s", f"{trace.train_s} is not a time", f"give {MOST_WORK_S:g} at most")
    yield msgspec.json.encode(_Header(VERSION, trace.name, trace.train_s)) + b"\n"
    for trajectory in trace.trajectories:
        order.check(trajectory)
        _check_times(trajectory)
        yield encode_line(trajectory)
    if not order.any:
        raise BadInput("trajectories", "the trace has none", "write at least one trajectory")


def _check_times(trajectory: TraceTrajectory) -> None:
    thinking = (turn.think_s for turn in trajectory.turns)
    working = (action.work_s for turn in trajectory.turns for action in turn.actions)
    for time_s in (trajectory.arrive_s, *thinking, *working):
        if not _is_time(time_s):
            fix = f"give {MOST_WORK_S:g} at most"
            raise BadInput(f"{trajectory.trajectory}: times", f"{time_s} is not a time", fix)


def _is_time(seconds: float) -> bool:
    return 0 <= seconds <= MOST_WORK_S


def _unpacked(plain: BufferedReader) -> BufferedIOBase:
    """The file's content, decompressed if needed, whatever its name."""
    is_packed = plain.peek(len(GZIP)).startswith(GZIP)
    return gzip.GzipFile(fileobj=plain) if is_packed else plain


class _Order:
    """Checks that concern several lines of a file."""

    def __init__(self) -> None:
        self._seen: set[TrajectoryId] = set()
        self._step = 0

    @property
    def any(self) -> bool:
        return bool(self._seen)

    def check(self, trajectory: TraceTrajectory) -> None:
        if trajectory.trajectory in self._seen:
            problem = f"{trajectory.trajectory!r} came before"
            raise BadInput("trajectory", problem, "give every trajectory its own id")
        if trajectory.step < self._step:
            problem = f"step {trajectory.step} comes after step {self._step}"
            raise BadInput("step", problem, "sort the lines by step")
        self._seen.add(trajectory.trajectory)
        self._step = trajectory.step
