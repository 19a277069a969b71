"""The task of the quick start, with a sandbox: a command compares the answer with the right one.

Attempts live on the nodes of the cluster, so that a node that is lost takes its attempts along.
"""

import random
from collections.abc import Iterator

from artangram.core.errors import InfraFailed
from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks import Dialogue
from artangram.orchestrator.client import Client, TrajectoryHandle

COLOURS = {"cherry": "red", "lemon": "yellow", "lime": "green", "plum": "blue"}
THINK_S = 0.05
"""An attempt lasts a while, as attempts do: some are on every node at any time."""


class FruitTask:
    """See `envs.protocol.Task`."""

    name, max_turns, max_tokens = "fruits", 1, 4

    def __init__(self, client: Client | None) -> None:
        self._client = client

    def problems(self, seed: int) -> Iterator[Problem]:
        chance = random.Random(seed)
        for number in range(10**9):
            data = {"fruit": chance.choice(list(COLOURS))}
            yield Problem(id=str(number), task=self.name, data=data)

    def env(self, problem: Problem, *, trajectory: str) -> "FruitEnv":
        assert self._client is not None, "there is no cluster to act on"
        sandbox = self._client.trajectory(task=self.name, memory_mb=64, id=trajectory)
        return FruitEnv(str(problem.data["fruit"]), sandbox)

    def demonstrate(self, problem: Problem, *, chance: random.Random) -> Dialogue:
        fruit, colour = str(problem.data["fruit"]), chance.choice(list(COLOURS.values()))
        return Dialogue(((fruit, f"{fruit} {colour}"),))


class FruitEnv:
    def __init__(self, fruit: str, sandbox: TrajectoryHandle) -> None:
        self._fruit = fruit
        self._sandbox = sandbox
        self._is_right = False

    @property
    def queued_s(self) -> float:
        return self._sandbox.queued_s

    async def reset(self) -> Observation:
        await self._sandbox.open()
        await self._ran(["sh", "-c", f"echo {COLOURS[self._fruit]} >{self._fruit}"])
        return Observation(text=self._fruit)

    async def respond(self, reply: str) -> Observation:
        look = f'sleep {THINK_S}; test "$1" = "{self._fruit} $(cat {self._fruit})"'
        self._is_right = await self._ran(["sh", "-c", look, "sh", reply])
        return Observation(text="", done=True)

    async def score(self) -> float:
        return float(self._is_right)

    async def aclose(self) -> None:
        await self._sandbox.close()

    async def _ran(self, argv: list[str]) -> bool:
        result = await self._sandbox.run(argv, kind="fruits/look")
        if result.exit_code is None or result.start_error:
            raise InfraFailed(result.reason)
        return result.exit_code == 0
