"""A run asks its cluster how long the line is, and goes on when the cluster is away."""

import asyncio

import pytest

from artangram.core.scheduling.expected import ExpectedWait
from artangram.orchestrator.records import Unreachable
from artangram.pipeline.line import LOOK_S, watched_line
from artangram.testing.fakes import fake_cluster

pytestmark = pytest.mark.looptime


class ScriptedClient:
    """Answers as it is told, one question after the other."""

    def __init__(self, *answers: ExpectedWait | Exception) -> None:
        self._answers = list(answers)

    async def expected_wait(self, job: str) -> ExpectedWait:
        answer = self._answers.pop(0) if self._answers else ExpectedWait()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_rollout_hears_of_the_longer_wait_every_second() -> None:
    heard: list[tuple[float, int]] = []
    memory, cores = ExpectedWait(memory_s=9.0, num_trajectories=4), ExpectedWait(cores_s=3.0)
    client = ScriptedClient(memory, Unreachable("away"), cores)
    async with watched_line(client, "run", lambda *line: heard.append(line)):  # type: ignore[arg-type]
        await asyncio.sleep(2.5 * LOOK_S)
    assert heard == [(9.0, 4), (3.0, 0)]


async def test_a_cluster_without_a_line_says_so() -> None:
    heard: list[tuple[float, int]] = []
    async with (
        fake_cluster() as client,
        watched_line(client, "run", lambda *line: heard.append(line)),
    ):
        await asyncio.sleep(0.5 * LOOK_S)
    assert heard == [(0.0, 0)]
