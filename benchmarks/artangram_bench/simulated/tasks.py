"""Environments made of numbers: how many turns, how much text, how long each answer takes.

- What happens to a trajectory depends on the seed and its name alone, not on when it runs, so two
  systems are compared on the same work.
- `InStep` lets every environment of a batch wait for the slowest at every turn: how rollouts are
  batched where environments are stepped together.
"""

import asyncio
from collections.abc import Iterator
from math import exp, sqrt
from random import Random
from statistics import NormalDist

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.envs.protocol import Env, Observation, Problem, Scorer, Task, TurnRewards
from artangram.sim.fluid import MeanTrajectory
from artangram_bench.simulated.words import words


class TaskShape(Struct, frozen=True, kw_only=True):
    """What the attempts of one domain look like."""

    name: str
    turns: tuple[int, int]
    """Fewest and most; all between are as likely."""
    prompt_tokens: int
    seen_tokens: int
    """What the environment says in one turn."""
    reply_tokens: float
    """Median of what the model says in one turn."""
    reply_spread: float = 0.3
    """Deviation of its log: above 0.7 the longest of a few hundred is many times the mean."""
    turn_s: float = 0.0
    turn_sigma_s: float = 0.0
    reset_s: float = 0.0
    reset_spread: float = 0.0
    """Deviation of its log."""
    reset_failures: float = 0.0
    """Share of resets that fail after all their time."""
    reward_s: float = 0.0
    max_tokens: int = 16_384
    """In one reply."""
    alike: float = 0.0
    """Share of the variance of turns and replies that belongs to the problem, not the attempt."""

    @property
    def mean(self) -> MeanTrajectory:
        reply = self.reply_tokens * exp(self.reply_spread**2 / 2.0)
        return MeanTrajectory(
            turns=sum(self.turns) / 2.0,
            prompt_tokens=self.prompt_tokens,
            seen_tokens=self.seen_tokens,
            reply_tokens=min(reply, self.max_tokens),
        )


class SyntheticTask:
    """See `envs.protocol.Task`."""

    def __init__(self, shape: TaskShape, *, seed: int = 0) -> None:
        self.shape = shape
        self._seed = seed

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def max_turns(self) -> int:
        return self.shape.turns[1] + 1

    @property
    def max_tokens(self) -> int:
        return self.shape.max_tokens

    def problems(self, seed: int) -> Iterator[Problem]:
        number = 0
        while True:
            yield Problem(id=f"{self.name}-{number}", task=self.name)
            number += 1

    def env(self, problem: Problem, *, trajectory: str) -> Env:
        problems = Random(f"{self._seed} {problem.id}")
        return SyntheticEnv(
            self.shape,
            Random(f"{self._seed} {trajectory}"),
            hardness=Hardness(turns=problems.gauss(0.0, 1.0), reply=problems.gauss(0.0, 1.0)),
            names=(problem.id, trajectory),
        )


class Hardness(Struct, frozen=True):
    """What siblings have in common, in standard deviations."""

    turns: float = 0.0
    reply: float = 0.0


class SyntheticEnv:
    """See `envs.protocol.Env`. Its reward needs no environment."""

    def __init__(
        self, shape: TaskShape, random: Random, *, hardness: Hardness, names: tuple[str, str]
    ) -> None:
        """`names` are the problem's and the trajectory's."""
        self._shape = shape
        self._random = random
        self._hardness = hardness
        self._problem, self._trajectory = names
        fewest, most = shape.turns
        likely = _NORMAL.cdf(self._deviation(hardness.turns))
        self._turns_left = min(most, fewest + int(likely * (most - fewest + 1)))

    async def reset(self) -> Observation:
        shape = self._shape
        await asyncio.sleep(shape.reset_s * self._random.lognormvariate(0.0, shape.reset_spread))
        if self._random.random() < shape.reset_failures:
            raise InfraFailed("the environment did not come up")
        return Observation(text=words(shape.prompt_tokens, self._reply(), about=self._problem))

    async def respond(self, reply: str) -> Observation:
        shape = self._shape
        await asyncio.sleep(max(0.0, self._random.gauss(shape.turn_s, shape.turn_sigma_s)))
        self._turns_left -= 1
        seen = words(shape.seen_tokens, self._reply(), about=self._trajectory)
        return Observation(text=seen, done=self._turns_left <= 0)

    async def score(self) -> float:
        await asyncio.sleep(self._shape.reward_s)
        return self._random.random()

    async def detach(self) -> Scorer:
        return self.score

    async def aclose(self) -> None:
        """Nothing is open."""

    def _reply(self) -> int:
        shape = self._shape
        spread = exp(shape.reply_spread * self._deviation(self._hardness.reply))
        return max(1, int(spread * shape.reply_tokens))

    def _deviation(self, of_problem: float) -> float:
        """A standard normal value, in part the problem's."""
        alike = self._shape.alike
        return sqrt(alike) * of_problem + sqrt(1.0 - alike) * self._random.gauss(0.0, 1.0)


_NORMAL = NormalDist()


class Step:
    """Where all environments of a batch meet at every turn."""

    def __init__(self) -> None:
        self._members = 0
        self._arrived = 0
        self._go = asyncio.Event()

    def join(self) -> None:
        self._members += 1

    def leave(self) -> None:
        self._members -= 1
        self._go_if_complete()

    async def meet(self) -> None:
        """Return when all environments have arrived."""
        self._arrived += 1
        go = self._go
        self._go_if_complete()
        await go.wait()

    def _go_if_complete(self) -> None:
        if self._arrived and self._arrived >= self._members:
            self._arrived = 0
            go, self._go = self._go, asyncio.Event()
            go.set()


class InStep:
    """A task whose environments all wait for the slowest; its reward is asked for at the end."""

    def __init__(self, task: Task, step: Step) -> None:
        self._task = task
        self._step = step

    @property
    def name(self) -> str:
        return self._task.name

    @property
    def max_turns(self) -> int:
        return self._task.max_turns

    @property
    def max_tokens(self) -> int:
        return self._task.max_tokens

    def problems(self, seed: int) -> Iterator[Problem]:
        return self._task.problems(seed)

    def env(self, problem: Problem, *, trajectory: str) -> Env:
        return _EnvInStep(self._task.env(problem, trajectory=trajectory), self._step)


class _EnvInStep:
    def __init__(self, env: Env, step: Step) -> None:
        self._env = env
        self._step = step
        self._is_member = True
        step.join()

    async def reset(self) -> Observation:
        seen = await self._env.reset()
        await self._step.meet()
        return seen

    async def respond(self, reply: str) -> Observation:
        seen = await self._env.respond(reply)
        await self._step.meet()
        if seen.done:
            self._leave()
        return seen

    async def score(self) -> float | TurnRewards:
        return await self._env.score()

    async def aclose(self) -> None:
        self._leave()
        await self._env.aclose()

    def _leave(self) -> None:
        if self._is_member:
            self._is_member = False
            self._step.leave()
