"""Which tests run next, on which worker: decisions only, no process and no clock.

- A test is its place in the collected suite. A `SuiteChunk` is tests that one worker goes through
  in order; a `TestPortion` is the next few of them, handed over at once and never taken back.
- Every test leaves through exactly one portion, except when `put_back` returns it unrun.
- A chunk that is `whole` shares fixtures and is never divided; any other is divided when a worker
  would otherwise have nothing to do.
- Chunks believed to be long go first, so that the end is even.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

UNKNOWN_S = 0.01
"""What a test is believed to take when nothing is known of it."""
PORTION_S = 0.05
"""A worker gets at most about this much at once: so late it may notice that its core is gone."""
MAX_PORTION = 32
CHUNKS_PER_WORKER = 8


class Trait(NamedTuple):
    """What binds a test to others: its file, and the fixtures it shares with its neighbours."""

    file: str
    shares: tuple[Hashable, ...] = ()


class TestPortion(NamedTuple):
    """Tests to run now, and the one that will follow on the same worker, as far as is known."""

    tests: tuple[int, ...]
    then: int | None


class SuiteChunk:
    """Tests that stay on one worker and in order."""

    __slots__ = ("tests", "whole")

    def __init__(self, tests: Iterable[int], *, whole: bool) -> None:
        self.tests = deque(tests)
        self.whole = whole

    def __repr__(self) -> str:
        return f"<Chunk of {len(self.tests)} tests{', whole' if self.whole else ''}>"


class SuiteDurations:
    """How long each test will take: from an earlier run, or like those of its file so far."""

    def __init__(self, files: Sequence[str], known: Mapping[int, float] | None = None) -> None:
        self._files = files
        self._known = dict(known or {})
        self._sums: dict[str, tuple[int, float]] = {}

    def of(self, test: int) -> float | None:
        """Seconds, or `None` when no test has ended yet."""
        if test in self._known:
            return self._known[test]
        count, total = self._sums.get(self._files[test], (0, 0.0))
        return total / count if count else None

    def sum(self, tests: Iterable[int]) -> float:
        """Seconds for all of them, one after the other."""
        return sum(UNKNOWN_S if s is None else s for s in map(self.of, tests))

    def learn(self, test: int, seconds: float) -> None:
        """A test of this file has just taken so long."""
        count, total = self._sums.get(self._files[test], (0, 0.0))
        self._sums[self._files[test]] = (count + 1, total + seconds)


def chunked(traits: Sequence[Trait], beliefs: SuiteDurations, *, workers: int) -> list[SuiteChunk]:
    """All tests in chunks: those that share fixtures together, the others in even slices."""
    whole: dict[int, list[int]] = {}
    free: dict[str, list[int]] = {}
    leaders = _Leaders()
    for trait in traits:
        leaders.join(trait.shares)
    for test, trait in enumerate(traits):
        if trait.shares:
            whole.setdefault(leaders.of(trait.shares[0]), []).append(test)
        else:
            free.setdefault(trait.file, []).append(test)
    limit_s = beliefs.sum(range(len(traits))) / (CHUNKS_PER_WORKER * workers)
    chunks = [SuiteChunk(tests, whole=True) for tests in whole.values()]
    for tests in free.values():
        chunks += [SuiteChunk(piece, whole=False) for piece in _slices(tests, beliefs, limit_s)]
    return chunks


def _slices(tests: list[int], beliefs: SuiteDurations, limit_s: float) -> list[list[int]]:
    pieces: list[list[int]] = [[]]
    spent_s = 0.0
    for test in tests:
        cost_s = beliefs.sum((test,))
        if pieces[-1] and spent_s + cost_s > limit_s:
            pieces.append([])
            spent_s = 0.0
        pieces[-1].append(test)
        spent_s += cost_s
    return pieces


class _Leaders:
    """Joins names that occur together, so that each family of names has one leader."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._parents: list[int] = []

    def join(self, names: tuple[Hashable, ...]) -> None:
        leaders = [self.of(name) for name in names]
        for leader in leaders[1:]:
            self._parents[self._top(leader)] = self._top(leaders[0])

    def of(self, name: Hashable) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._parents)
            self._parents.append(len(self._parents))
        return self._top(self._numbers[name])

    def _top(self, number: int) -> int:
        while self._parents[number] != number:
            number = self._parents[number]
        return number


class SuiteQueue:
    """What is still to be done. Workers take chunks, and portions of the chunk they have."""

    def __init__(self, chunks: Iterable[SuiteChunk], beliefs: SuiteDurations) -> None:
        self._beliefs = beliefs
        # Longest last, for pop(); a stable sort keeps the suite's order among equals.
        ordered = sorted(chunks, key=lambda c: beliefs.sum(c.tests), reverse=True)
        self._waiting = ordered[::-1]

    def __repr__(self) -> str:
        return f"<Work: {len(self._waiting)} chunks wait>"

    def take(self, held: Iterable[SuiteChunk]) -> SuiteChunk | None:
        """A chunk for a worker that has none: one that waits, or part of one that is `held`."""
        if self._waiting:
            return self._waiting.pop()
        divisible = [c for c in held if c.tests and not c.whole]
        if not divisible:
            return None
        return self._divide(max(divisible, key=lambda c: self._beliefs.sum(c.tests)))

    def portion(self, chunk: SuiteChunk) -> TestPortion:
        """The next tests of `chunk`, which has some: few enough to be over soon."""
        tests = [chunk.tests.popleft()]
        spent_s = self._beliefs.of(tests[0])
        while chunk.tests and spent_s is not None and len(tests) < MAX_PORTION:
            cost_s = self._beliefs.of(chunk.tests[0])
            if cost_s is None or spent_s + cost_s > PORTION_S:
                break
            spent_s += cost_s
            tests.append(chunk.tests.popleft())
        return TestPortion(tuple(tests), chunk.tests[0] if chunk.tests else None)

    def is_short(self, test: int, chunk: SuiteChunk) -> bool:
        """Whether `test` and the next of `chunk` are known to fit in one portion together."""
        if not chunk.tests:
            return False
        first_s, second_s = self._beliefs.of(test), self._beliefs.of(chunk.tests[0])
        return first_s is not None and second_s is not None and first_s + second_s <= PORTION_S

    def put_back(self, chunk: SuiteChunk) -> None:
        """Its worker is gone: another one takes what is left of it, and soon."""
        if chunk.tests:
            self._waiting.append(chunk)

    def _divide(self, chunk: SuiteChunk) -> SuiteChunk:
        half_s = self._beliefs.sum(chunk.tests) / 2
        taken: deque[int] = deque([chunk.tests.pop()])
        spent_s = self._beliefs.sum(taken)
        while len(chunk.tests) > 1:
            spent_s += self._beliefs.sum((chunk.tests[-1],))
            if spent_s > half_s:
                break
            taken.appendleft(chunk.tests.pop())
        return SuiteChunk(taken, whole=False)
