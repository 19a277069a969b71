"""A task that uses a cluster in earnest: a command in a sandbox for every turn, a service for the
reward. What is right is as in `small`. The service answers with its process, so that a test can
end it.
"""

import os

from artangram.core.errors import InfraFailed
from artangram.envs.protocol import Observation, Problem
from integration.pipeline.small import RIGHT, WordsTask

SERVICE = "teller"
READ = "words/read"
MARK = "0.0731"
"""How long a turn's command sleeps, and how it is known among all processes."""


class EndListener:
    def predict(self, payloads):
        return [{"score": float(p["said"] == p["right"]), "pid": os.getpid()} for p in payloads]


def teller(files):
    return EndListener()


class Clusterwork(WordsTask):
    def __init__(self, client, *, job):
        super().__init__()
        self.client = client
        self.job = job

    def env(self, problem: Problem, *, trajectory):
        return ClusterworkEnv(self, problem.data["word"], trajectory)


class ClusterworkEnv:
    def __init__(self, task, word, trajectory):
        self._task = task
        self._word = word
        self._said = ""
        self._place = task.client.trajectory(
            job=task.job, task=task.name, memory_mb=32, id=trajectory
        )

    async def reset(self):
        await self._place.__aenter__()
        await self._place.write("word", self._word)
        return Observation(text=self._word)

    async def respond(self, reply):
        ran = await self._place.run(
            ["/bin/sh", "-c", f"sleep {MARK}; cat word"], kind=READ, timeout_s=60
        )
        if not ran.ok:
            raise InfraFailed(f"{ran.outcome}: {ran.reason}")
        self._said = reply
        assert ran.stdout == self._word, "the sandbox of another attempt"
        return Observation(text="", done=True)

    async def score(self):
        asked = {"said": self._said, "right": f"{self._word} {RIGHT[self._word]}"}
        answer = await self._task.client.call(
            SERVICE, asked, kind="words/score", job=self._task.job, task=self._task.name
        )
        return answer["score"]

    async def aclose(self):
        await self._place.close()
