"""Any agent as a task: a function that asks the model by itself, with any client or framework.

    async def solve(problem, llm, client):
        chat = AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key)
        asked = [{"role": "user", "content": problem["question"]}]
        answer = await chat.chat.completions.create(model=llm.model, messages=asked)
        return answer.choices[0].message.content

    def score(problem, answer):
        return float(answer == problem["answer"])

- `solve` gets a row of the data set, the way to the model, and the client of the cluster. The key
  of `llm` belongs to this attempt: all that is sampled with it is the trajectory.
- `score` gets the row and what `solve` returned. Without it, `solve` returns the reward.
- Either may return `TurnRewards` in place of a number: a reward for each request, too.
- Both may be async. Those that are not run in a thread of their own.
- `AttemptFailed` says that the model went wrong; the attempt is scored with `None` as its answer.
  Any other exception is a defect or a failure of infrastructure, and never a reward.
- What `solve` opens through `client.trajectory` is open while `score` runs, and closed after it.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from artangram.core.errors import BadInput
from artangram.envs.protocol import ModelAccess, Observation, Problem, TurnRewards

Row = Mapping[str, Any]
Solve = Callable[[dict[str, Any], ModelAccess, Any], Any]
Score = Callable[[dict[str, Any], Any], Any]

MOST_TURNS = 1 << 30
"""An agent without a limit of turns is bounded by the time that its phase may take."""


class AttemptFailed(Exception):
    """For agents to raise: the model's answers cannot be used, so this attempt is a bad one."""


class AgentTask:
    """See the module and `protocol.Task`. `problems` gives rows for a seed."""

    def __init__(
        self,
        name: str,
        *,
        problems: Callable[[int], Iterable[Row]],
        solve: Solve,
        score: Score | None = None,
        client: Any = None,
        job: str = "default",
        max_turns: int = MOST_TURNS,
        max_tokens: int = 0,
        samples_as_run: bool = False,
    ) -> None:
        self.name = name
        self.job = job
        self.max_turns = max_turns
        """Requests that one attempt may make."""
        self.max_tokens = max_tokens
        """Of one answer; 0 leaves it to the agent and the context."""
        self.samples_as_run = samples_as_run
        """The run's sampling settings replace those of the agent's requests."""
        self.solve = solve
        self.score = score
        self.client = client
        self._problems = problems

    def problems(self, seed: int) -> Iterator[Problem]:
        for number, row in enumerate(self._problems(seed)):
            name = row.get("id", number)
            yield Problem(id=f"{seed}-{name}", task=self.name, data=dict(row))

    def env(self, problem: Problem, *, trajectory: str) -> "AgentEnv":
        return AgentEnv(self, problem, trajectory=trajectory)


class AgentEnv:
    """One attempt of an agent; see `protocol.Solving`."""

    def __init__(self, task: AgentTask, problem: Problem, *, trajectory: str) -> None:
        self._task = task
        self._row = dict(problem.data)
        self._client = AttemptClient(
            task.client, job=task.job, task=task.name, problem=problem.id, trajectory=trajectory
        )
        self.samples_as_run = task.samples_as_run
        self._answer: Any = None
        self._has_failed = False

    @property
    def queued_s(self) -> float:
        return self._client.queued_s

    async def reset(self) -> Observation:
        raise AssertionError("an agent asks the model by itself: call `solve`")

    async def respond(self, reply: str) -> Observation:
        raise AssertionError("an agent reads the replies by itself")

    async def solve(self, llm: ModelAccess) -> Observation:
        try:
            self._answer = await called(self._task.solve, dict(self._row), llm, self._client)
        except AttemptFailed:
            self._has_failed = True
        return Observation(text="", done=True, failed=self._has_failed)

    async def score(self) -> float | TurnRewards:
        if self._task.score is not None:
            return _number(await called(self._task.score, dict(self._row), self._answer))
        return 0.0 if self._has_failed else _number(self._answer)

    async def aclose(self) -> None:
        await self._client.aclose()


class AttemptClient:
    """The client of the cluster for one attempt: what it opens is named, timed and closed."""

    def __init__(self, client: Any, *, job: str, task: str, problem: str, trajectory: str) -> None:
        self._client = client
        self._defaults = {"job": job, "task": task, "problem": problem}
        self._trajectory = trajectory
        self._opened: list[Any] = []

    def __getattr__(self, verb: str) -> Any:
        """Every other verb is the client's own."""
        return getattr(self._client, verb)

    @property
    def queued_s(self) -> float:
        """Seconds that its sandboxes waited in line."""
        return float(sum(one.queued_s for one in self._opened))

    def trajectory(self, **given: Any) -> Any:
        """A sandbox of this attempt; see the client's own verb."""
        number = f"-{len(self._opened)}" if self._opened else ""
        named = {**self._defaults, "id": f"{self._trajectory}{number}", **given}
        opened = self._client.trajectory(**named)
        self._opened.append(opened)
        return opened

    async def aclose(self) -> None:
        for one in self._opened:
            await one.close()


async def called(function: Callable[..., Any], *given: Any) -> Any:
    """What a function returns that may be async; one that is not runs in a thread of its own."""
    if inspect.iscoroutinefunction(function):
        return await function(*given)
    found = await _in_thread(function, *given)
    return await found if inspect.isawaitable(found) else found


async def _in_thread(function: Callable[..., Any], *given: Any) -> Any:
    """In a thread that no pool limits. When its caller is cancelled the thread is left behind: its
    next request to the model is refused, and it keeps no program from ending."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(result)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function(*given)
        except StopIteration as stop:  # A future does not take it.
            error = RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:  # noqa: BLE001 - it is raised where the result is awaited
            error = raised
        with suppress(RuntimeError):  # The loop is closed: there is nothing left to tell.
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name=f"agent {function!r}", daemon=True).start()
    return await found


def _number(reward: Any) -> float | TurnRewards:
    if isinstance(reward, TurnRewards):
        return reward
    if isinstance(reward, bool | int | float):
        return float(reward)
    problem = f"is {reward!r}, which is not a number"
    raise BadInput("reward", problem, "return a number from `score`, or from `solve` without it")
