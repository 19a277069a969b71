"""What the model said, kept for people: the best and the worst attempts of each step, as text.

`transcripts.jsonl.gz` has a line per attempt. A step is a gzip member of its own, so a crash spoils
at most the last one, and a resumed run adds the steps that it makes again.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.core.rollout.trajectory import Group, Segment, Trajectory
from artangram.models.tokenizer import Tokenizer

FILE_NAME = "transcripts.jsonl.gz"


class Utterance(Struct, frozen=True):
    """Text that was sampled, or given to the model."""

    is_sampled: bool
    text: str
    token_ids: tuple[int, ...] = ()
    """The very tokens, with those that have no text."""


class Transcript(Struct, frozen=True, kw_only=True):
    """One attempt, as a line of the file."""

    step: int
    task: str
    problem: str
    trajectory: str
    status: str
    reward: float | None
    conversations: list[list[Utterance]]


class Transcripts:
    """The file of a run; at most `most` attempts of a step are kept."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, *, most: int) -> None:
        self.path = directory / FILE_NAME
        self._tokenizer = tokenizer
        self._most = most

    def add(self, step: int, groups: Sequence[Group]) -> None:
        if chosen := self._chosen(groups):
            lines = (msgspec.json.encode(self._transcript(step, one)) + b"\n" for one in chosen)
            with self.path.open("ab") as file:
                file.write(gzip.compress(b"".join(lines)))

    def _chosen(self, groups: Sequence[Group]) -> list[Trajectory]:
        """The best and the worst of each task, in turn."""
        by_task: dict[str, list[Trajectory]] = {}
        for group in groups:
            by_task.setdefault(group.task, []).extend(group.trajectories)
        ends = [list(_from_both_ends(found)) for found in by_task.values()]
        mixed = [one for row in zip_longest(*ends) for one in row if one is not None]
        return mixed[: self._most]

    def _transcript(self, step: int, one: Trajectory) -> Transcript:
        return Transcript(
            step=step,
            task=one.task,
            problem=one.problem,
            trajectory=str(one.id),
            status=one.status.value,
            reward=one.reward,
            conversations=[[self._said(part) for part in line] for line in one.conversations],
        )

    def _said(self, segment: Segment) -> Utterance:
        text = self._tokenizer.decode(segment.token_ids)
        return Utterance(segment.is_sampled, text, segment.token_ids)


def read(path: Path) -> list[Transcript]:
    """The attempts of a file; what a crash cut short at its end is left out."""
    return decoded(path.read_bytes())[0] if path.exists() else []


def decoded(data: bytes) -> tuple[list[Transcript], int]:
    """The attempts of all whole steps in `data`, and how many bytes those are."""
    found: list[Transcript] = []
    size = 0
    while size < len(data):
        step = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            lines = step.decompress(data[size:])
            if not step.eof:
                break
            found += [msgspec.json.decode(line, type=Transcript) for line in lines.splitlines()]
        except (zlib.error, msgspec.MsgspecError):
            break
        size = len(data) - len(step.unused_data)
    return found, size


def _from_both_ends(found: Sequence[Trajectory]) -> Iterator[Trajectory]:
    """The best, the worst, the second best, and so on."""
    ranked = sorted(found, key=lambda one: -(one.reward or 0.0))
    low, high = 0, len(ranked) - 1
    while low <= high:
        yield ranked[low]
        if low < high:
            yield ranked[high]
        low, high = low + 1, high - 1
