"""One environment as several tasks: some of the fruits each."""

import random

from guessing import Guessing

from artangram.envs.protocol import Problem


class Fruits(Guessing):
    def __init__(self, client, *, name, fruits):
        self.name, self.fruits = name, fruits

    def problems(self, seed):
        chance = random.Random(seed)
        for number in range(10**9):
            fruit = chance.choice(self.fruits)
            yield Problem(id=str(number), task=self.name, data={"fruit": fruit})
