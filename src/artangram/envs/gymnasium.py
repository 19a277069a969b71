"""Any Gymnasium environment as a task; Gymnasium itself is the caller's to install and import.

    task = GymnasiumTask(
        "lake",
        make=lambda: gymnasium.make("FrozenLake-v1", is_slippery=False),
        describe=lambda observation, info: f"You stand on {observation}.",
        action_of=lambda reply: ["left", "down", "right", "up"].index(reply.strip()),
    )

- A problem is a seed for `reset`; the score is the sum of the rewards.
- A reply that is no action (`action_of` raises `ValueError`) costs a turn and says so.
- Gymnasium's calls block, so each runs in a thread; one environment's calls never overlap.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Protocol

from artangram.envs.protocol import Observation, Problem

Describe = Callable[[Any, dict[str, Any]], str]
"""What the model reads, from Gymnasium's observation and info."""


class GymnasiumEnv(Protocol):
    """What is needed of `gymnasium.Env`."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]: ...

    def close(self) -> None: ...


class GymnasiumTask:
    """See the module and `protocol.Task`."""

    def __init__(
        self,
        name: str,
        *,
        make: Callable[[], GymnasiumEnv],
        describe: Describe,
        action_of: Callable[[str], Any],
        max_turns: int = 32,
        max_tokens: int = 256,
    ) -> None:
        self.name = name
        self.max_turns = max_turns
        self.max_tokens = max_tokens
        self.make = make
        self.describe = describe
        self.action_of = action_of

    def problems(self, seed: int) -> Iterator[Problem]:
        for number in count():
            # Gymnasium's seeds are not negative; this keeps runs with other seeds apart.
            yield Problem(
                id=f"{self.name}-{seed}-{number}",
                task=self.name,
                data={"seed": seed * 1_000_003 + number},
            )

    def env(self, problem: Problem, *, trajectory: str) -> "PlayedEnv":
        return PlayedEnv(self, problem)


class PlayedEnv:
    """One episode; see `protocol.Env`."""

    def __init__(self, task: GymnasiumTask, problem: Problem) -> None:
        self._task = task
        self._seed: int = problem.data["seed"]
        self._env: GymnasiumEnv | None = None
        self._reward = 0.0
        self._calls = asyncio.Lock()

    async def reset(self) -> Observation:
        seen, info = await self._blocking(self._made)
        return Observation(text=self._task.describe(seen, info))

    async def respond(self, reply: str) -> Observation:
        try:
            action = self._task.action_of(reply)
        except ValueError as error:
            return Observation(text=f"That is no action: {error}")
        assert self._env is not None, "reset first"
        env = self._env
        seen, reward, terminated, truncated, info = await self._blocking(lambda: env.step(action))
        self._reward += float(reward)
        text = self._task.describe(seen, info)
        return Observation(text=text, done=bool(terminated or truncated))

    async def score(self) -> float:
        return self._reward

    async def aclose(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            await self._blocking(env.close)

    def _made(self) -> tuple[Any, dict[str, Any]]:
        self._env = self._task.make()
        return self._env.reset(seed=self._seed)

    async def _blocking(self, call: Callable[[], Any]) -> Any:
        """In a thread. A call that was given up still runs: the next waits for its end."""
        async with self._calls:
            running = asyncio.ensure_future(asyncio.to_thread(call))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait({running})
                raise
