"""An environment of your own: which colour has the fruit?"""

import random

from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks import Dialogue

COLOURS = {"cherry": "red", "lemon": "yellow", "lime": "green", "plum": "blue"}


class Guessing:
    name, max_turns, max_tokens = "guessing", 1, 4

    def __init__(self, client):
        pass  # Environments that run things keep the cluster.

    def problems(self, seed):
        chance = random.Random(seed)
        for number in range(10**9):
            fruit = chance.choice(list(COLOURS))
            yield Problem(id=str(number), task=self.name, data={"fruit": fruit})

    def env(self, problem, *, trajectory):
        return Guess(problem.data["fruit"])

    def demonstrate(self, problem, *, chance):
        fruit, colour = problem.data["fruit"], chance.choice(list(COLOURS.values()))
        return Dialogue(((fruit, f"{fruit} {colour}"),))


class Guess:
    def __init__(self, fruit):
        self.fruit, self.said = fruit, ""

    async def reset(self):
        return Observation(text=self.fruit)

    async def respond(self, reply):
        self.said = reply
        return Observation(text="", done=True)

    async def score(self):
        return float(self.said == f"{self.fruit} {COLOURS[self.fruit]}")

    async def aclose(self):
        pass
