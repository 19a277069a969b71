"""A small world for the rollout: a model that only counts, environments that do as they are told.

Everything takes the time of the event loop, so a test on virtual time runs an hour in a moment.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from artangram.core.errors import InfraFailed
from artangram.core.rollout.trajectory import Segment, VersionSpan
from artangram.envs.protocol import Observation, Problem
from artangram.gateway.engines.protocol import FinishReason, Sampling
from artangram.gateway.gateway import ContextFull
from artangram.rollout import Plan, Rollout, Source, Stage


@dataclass(frozen=True)
class FakeReply:
    text: str = "word"
    finish: FinishReason = FinishReason.STOP


class FakeDoor:
    """A model of any capacity: every token takes `token_s`, and has the version live then."""

    def __init__(self, *, token_s: float = 0.1, tokens: int = 3, queue_s: float = 0.0) -> None:
        self.version = 0
        self.token_s = token_s
        self.tokens = tokens
        self.queue_s = queue_s
        self.open_sessions: set[str] = set()
        self.generating = 0
        self.fails: Callable[[str], bool] = lambda name: False
        self.finish = FinishReason.STOP
        self.full_after: int | None = None
        """Turns after which the context of a session is full."""

    def open(self, session_id: str, *, task: str = "", tokenizer: object = None) -> "FakeSession":
        assert session_id not in self.open_sessions
        self.open_sessions.add(session_id)
        return FakeSession(self, session_id)


class FakeSession:
    def __init__(self, endpoint: FakeDoor, name: str) -> None:
        self._endpoint = endpoint
        self._name = name
        self._segments: list[Segment] = []
        self._versions: list[int] = []
        self._running: list[int] = []
        self._queued_s = 0.0
        self._queued_since: float | None = None

    @property
    def oldest_version(self) -> int | None:
        return min(self._versions + self._running, default=None)

    @property
    def queued_s(self) -> float:
        since = self._queued_since
        now = asyncio.get_running_loop().time()
        return self._queued_s + (0.0 if since is None else now - since)

    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def branches(self) -> tuple[tuple[Segment, ...], ...]:
        return ()

    async def generate(self, new: str, sampling: Sampling) -> FakeReply:
        if (
            self._endpoint.full_after is not None
            and len(self._segments) >= 2 * self._endpoint.full_after
        ):
            raise ContextFull("prompt", "is too long", "shorten it")
        self._endpoint.generating += 1
        self._running = []
        try:
            await self._queue()
            for _ in range(self._endpoint.tokens):
                await asyncio.sleep(self._endpoint.token_s)
                self._running.append(self._endpoint.version)
            if self._endpoint.fails(self._name):
                raise InfraFailed("the engine stumbled")
            self._keep()
        finally:
            self._running = []
            self._endpoint.generating -= 1
        return FakeReply(finish=self._endpoint.finish)

    async def close(self) -> None:
        self._endpoint.open_sessions.discard(self._name)

    async def _queue(self) -> None:
        self._queued_since = asyncio.get_running_loop().time()
        await asyncio.sleep(self._endpoint.queue_s)
        self._queued_s = self.queued_s
        self._queued_since = None

    def _keep(self) -> None:
        count = len(self._running)
        spans = tuple(VersionSpan(v, i, i + 1) for i, v in enumerate(self._running))
        self._segments.append(Segment(token_ids=(1,)))
        self._segments.append(Segment(token_ids=(2,) * count, logprobs=(0.0,) * count, spans=spans))
        self._versions += self._running


@dataclass
class FakeTask:
    """Its environments take the times that the functions say, by the trajectory's name."""

    name: str = "math"
    turns: int = 2
    max_turns: int = 8
    max_tokens: int = 16
    reset_s: Callable[[str], float] = lambda name: 0.0
    turn_s: Callable[[str], float] = lambda name: 1.0
    reward_s: Callable[[str], float] = lambda name: 0.0
    reward: Callable[[str], float] = lambda name: float(len(name) % 2)
    fails: Callable[[str], bool] = lambda name: False
    score_fails: Callable[[str], bool] = lambda name: False
    detaches: bool = False
    open_envs: set[str] = field(default_factory=set)
    most_open: int = 0
    scoring: int = 0

    def problems(self, seed: int) -> Iterator[Problem]:
        number = 0
        while True:
            yield Problem(id=f"{self.name}-{seed}-{number}", task=self.name)
            number += 1

    def env(self, problem: Problem, *, trajectory: str) -> "FakeEnv":
        return DetachableEnv(self, trajectory) if self.detaches else FakeEnv(self, trajectory)


class FakeEnv:
    def __init__(self, task: FakeTask, name: str) -> None:
        self._task = task
        self._name = name
        self._turns = 0
        task.open_envs.add(name)
        task.most_open = max(task.most_open, len(task.open_envs))

    async def reset(self) -> Observation:
        await asyncio.sleep(self._task.reset_s(self._name))
        return Observation(text="begin", done=self._task.turns == 0)

    async def respond(self, reply: str) -> Observation:
        await asyncio.sleep(self._task.turn_s(self._name))
        if self._task.fails(self._name):
            raise InfraFailed("the environment crashed")
        self._turns += 1
        return Observation(text="go on", done=self._turns >= self._task.turns)

    async def score(self) -> float:
        assert self._name in self._task.open_envs
        return await self._scored()

    async def _scored(self) -> float:
        self._task.scoring += 1
        try:
            await asyncio.sleep(self._task.reward_s(self._name))
        finally:
            self._task.scoring -= 1
        if self._task.score_fails(self._name):
            raise InfraFailed("the judge is away")
        return self._task.reward(self._name)

    async def aclose(self) -> None:
        self._task.open_envs.remove(self._name)


class DetachableEnv(FakeEnv):
    async def detach(self) -> Callable[[], object]:
        return self._scored


def a_rollout(
    *tasks: FakeTask,
    endpoint: FakeDoor,
    shares: dict[str, int] | None = None,
    most_issues: int = 3,
    **plan: object,
) -> Rollout:
    stages = [Stage(shares=shares)] if shares else []
    settings = {"environments": 16, "group_size": 4} | plan
    source = Source(tasks, stages=stages, most_issues=most_issues)
    return Rollout(source, endpoint, plan=Plan(**settings))


async def train(
    rollout: Rollout, endpoint: FakeDoor, *, batches: int, num_groups: int, step_s: float = 1.0
) -> list:
    """The smallest trainer: each batch makes the next version, live at once."""
    taken = []
    for version in range(rollout.updates.current + 1, rollout.updates.current + 1 + batches):
        batch = await rollout.sink.batch(num_groups)
        taken.append(batch)
        await asyncio.sleep(step_s)
        rollout.settle(batch)
        rollout.announce(version)
        endpoint.version = version
        rollout.go_live(version)
    return taken
