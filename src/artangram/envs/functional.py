"""A task made of plain functions: what to ask, what to answer, how good it was.

    task = FunctionTask(
        "add",
        problems=lambda seed: ({"a": n, "b": n + seed} for n in count()),
        ask=lambda data: f"{data['a']} + {data['b']} = ?",
        score=lambda data, replies: float(replies[-1].strip() == str(data["a"] + data["b"])),
    )

- `answer` makes it a conversation: it gets the replies so far and returns what the model reads
  next, or `None` at the end. Without it there is one turn.
- Functions may be async. Those that are not must be quick: they run on the event loop.
- The reward needs only the replies, so the environment is given back before it is known.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from artangram.core.errors import BadInput
from artangram.envs.protocol import Observation, Problem, Scorer

T = TypeVar("T")

Data = Mapping[str, Any]
Replies = tuple[str, ...]
Ask = Callable[[Data], str | Awaitable[str]]
Answer = Callable[[Data, Replies], str | Awaitable[str | None] | None]
Score = Callable[[Data, Replies], float | Awaitable[float]]


class FunctionTask:
    """See the module and `protocol.Task`."""

    def __init__(
        self,
        name: str,
        *,
        problems: Callable[[int], Iterable[Data]],
        ask: Ask,
        score: Score,
        answer: Answer | None = None,
        max_turns: int = 1,
        max_tokens: int = 256,
    ) -> None:
        if answer is None and max_turns != 1:
            problem = f"{max_turns} turns, but there is no `answer` for the model"
            raise BadInput("max_turns", problem, "give `answer`, or leave it at 1")
        self.name = name
        self.max_turns = max_turns
        self.max_tokens = max_tokens
        self.ask = ask
        self.answer = answer
        self.score = score
        self._problems = problems

    def problems(self, seed: int) -> Iterator[Problem]:
        for number, data in enumerate(self._problems(seed)):
            yield Problem(id=f"{self.name}-{seed}-{number}", task=self.name, data=dict(data))

    def env(self, problem: Problem, *, trajectory: str) -> "FunctionEnv":
        return FunctionEnv(self, problem)


class FunctionEnv:
    """See `protocol.Env` and `protocol.Detachable`."""

    def __init__(self, task: FunctionTask, problem: Problem) -> None:
        self._task = task
        self._data = problem.data
        self._replies: Replies = ()

    async def reset(self) -> Observation:
        return Observation(text=await _now_or_later(self._task.ask(self._data)))

    async def respond(self, reply: str) -> Observation:
        self._replies = (*self._replies, reply)
        if self._task.answer is None:
            return Observation(text="", done=True)
        text = await _now_or_later(self._task.answer(self._data, self._replies))
        return Observation(text=text or "", done=text is None)

    async def score(self) -> float:
        return await _now_or_later(self._task.score(self._data, self._replies))

    async def detach(self) -> Scorer:
        return self.score

    async def aclose(self) -> None:
        """Closes nothing: a function holds nothing."""


async def _now_or_later(found: T | Awaitable[T]) -> T:
    if inspect.isawaitable(found):
        return await found
    return found
