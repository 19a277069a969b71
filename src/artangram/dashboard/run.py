"""What pages show of a training run, read from the files that it writes: curves and transcripts.

Only what was added since the last look is read. A run that was resumed writes its steps anew; then
they are read from the start. At most `MOST_POINTS` points of a curve and `MOST_TRANSCRIPTS`
attempts are kept, however long the run is.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.pipeline import exams, metrics, transcripts
from artangram.pipeline.transcripts import Transcript, Utterance

MOST_POINTS = 500
MOST_TRANSCRIPTS = 60
MOST_TEXT_CHARACTERS = 20_000
"""Of one utterance."""


class RunCurves(Struct, frozen=True, kw_only=True):
    """A run so far; the names of its series are those that trackers get."""

    run: str
    planned: int
    """Steps that the run is to make."""
    steps: list[int]
    series: dict[str, list[float | None]]
    """A value per step; `None` where a step has none."""


class RunFollower:
    """Follows the files of one run."""

    def __init__(self, directory: Path, *, run: str, planned: int) -> None:
        self.run = run
        self._planned = planned
        self._metrics = _Tail(directory / metrics.FILE_NAME)
        self._exams = _Tail(directory / exams.FILE_NAME)
        self._transcripts = _Tail(directory / transcripts.FILE_NAME)
        self._points: list[tuple[int, dict[str, float]]] = []
        self._examined: dict[int, dict[str, float]] = {}
        self._latest: deque[Transcript] = deque(maxlen=MOST_TRANSCRIPTS)
        self._reading = asyncio.Lock()

    async def curves(self) -> RunCurves:
        async with self._reading:
            await asyncio.to_thread(self._read_steps)
            await asyncio.to_thread(self._read_exams)
            return self._curves()

    async def transcripts(self) -> list[Transcript]:
        """The latest attempts that the run kept, the newest first."""
        async with self._reading:
            await asyncio.to_thread(self._read_transcripts)
            return list(reversed(self._latest))

    def _read_steps(self) -> None:
        if self._metrics.is_new():
            self._points.clear()
        for line in self._metrics.lines():
            record = msgspec.json.decode(line, type=metrics.StepRecord)
            self._points.append((record.step, metrics.scalars(record)))

    def _read_exams(self) -> None:
        if self._exams.is_new():
            self._examined.clear()
        for line in self._exams.lines():
            record = msgspec.json.decode(line, type=exams.ExamRecord)
            self._examined[record.step] = exams.scalars(record)

    def _read_transcripts(self) -> None:
        if self._transcripts.is_new():
            self._latest.clear()
        found, size = transcripts.decoded(self._transcripts.more())
        self._transcripts.taken(size)
        self._latest.extend(map(_shortened, found))

    def _curves(self) -> RunCurves:
        points = [(step, {**self._examined.get(step, {}), **v}) for step, v in self._points]
        if points and 0 in self._examined:
            points.insert(0, (0, self._examined[0]))
        width = -(-len(points) // MOST_POINTS) or 1
        chunks = [points[i : i + width] for i in range(0, len(points), width)]
        names = dict.fromkeys(name for _, values in points for name in values)
        return RunCurves(
            run=self.run,
            planned=self._planned,
            steps=[chunk[-1][0] for chunk in chunks],
            series={
                name: [_mean([v[name] for _, v in chunk if name in v]) for chunk in chunks]
                for name in names
            },
        )


class _Tail:
    """The part of a file that was not read yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def is_new(self) -> bool:
        """Has another file taken its place? Then it is read from the start."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        if found.st_ino == self._inode and found.st_size >= self._offset:
            return False
        self._inode, self._offset = found.st_ino, 0
        return True

    def more(self) -> bytes:
        if not self._path.exists():
            return b""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            return file.read()

    def lines(self) -> list[bytes]:
        """The whole ones that were not read yet."""
        whole, _, _ = self.more().rpartition(b"\n")
        self.taken(len(whole) + bool(whole))
        return whole.splitlines()

    def taken(self, size: int) -> None:
        self._offset += size


def _shortened(one: Transcript) -> Transcript:
    return msgspec.structs.replace(
        one,
        conversations=[
            [Utterance(part.is_sampled, part.text[:MOST_TEXT_CHARACTERS]) for part in conversation]
            for conversation in one.conversations
        ],
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
