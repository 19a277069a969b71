"""Questions that many attempts ask: those that come at about the same time are asked together.

- The first one waits a moment for others; what comes while a run is under way makes up the next.
- Every question is really asked: none is answered from memory.
- When a run fails, every caller whose question was in it hears why. It is cancelled only when no
  caller waits for it any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

Ask = Callable[[Sequence[Q]], Awaitable[Sequence[A]]]
"""One answer per question, in order."""


class _Run(Generic[Q, A]):
    """Questions that are asked together, and how many still want to know."""

    __slots__ = ("answers", "questions", "waiting")

    def __init__(self) -> None:
        self.questions: list[Q] = []
        self.waiting = 0
        self.answers: asyncio.Task[Sequence[A]] | None = None


class Together(Generic[Q, A]):
    """See the module."""

    def __init__(self, ask: Ask[Q, A], *, gather_s: float) -> None:
        self._ask = ask
        self._gather_s = gather_s
        self._turn = asyncio.Lock()
        self._next: _Run[Q, A] | None = None

    async def answer(self, question: Q) -> A:
        """What is answered to this question, asked with others."""
        run = self._next or self._begun()
        place = len(run.questions)
        run.questions.append(question)
        run.waiting += 1
        assert run.answers is not None
        try:
            return (await asyncio.shield(run.answers))[place]
        finally:
            run.waiting -= 1
            if not run.waiting:
                self._drop(run)

    def _begun(self) -> _Run[Q, A]:
        run = self._next = _Run()
        run.answers = asyncio.create_task(self._made(run))
        return run

    async def _made(self, run: _Run[Q, A]) -> Sequence[A]:
        async with self._turn:
            await asyncio.sleep(self._gather_s)
            self._next = None
            return await self._ask(run.questions)

    def _drop(self, run: _Run[Q, A]) -> None:
        assert run.answers is not None
        run.answers.cancel()
        if self._next is run:
            self._next = None
