"""A run so small that a test can wait for it: `python small.py OUT SEED STEPS [resume]`.

The task has no resources: four words, four verbs, and which belongs to which is only rewarded.
"""

import asyncio
import random
import sys
from functools import partial
from pathlib import Path

from artangram.core.errors import InfraFailed
from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.dialogue import Dialogue
from artangram.models.vocabulary import Vocabulary
from artangram.pipeline.settings import RunSettings
from artangram.train.settings import TrainSettings
from artangram.train.warmup import WarmupSettings

RIGHT = {"north": "up", "south": "down", "west": "left", "east": "right"}


class WordsTask:
    """See `envs.protocol.Task`. A share of the attempts fails as infrastructure does."""

    name = "words"
    max_turns = 1
    max_tokens = 4

    def __init__(self, failing=0.0, seed=0):
        self._failing = failing
        self._chance = random.Random(seed)

    def problems(self, seed):
        chance = random.Random(seed)
        number = 0
        while True:
            number += 1
            yield Problem(id=f"{number}", task=self.name, data={"word": chance.choice([*RIGHT])})

    def env(self, problem, *, trajectory):
        return WordsEnv(problem.data["word"], fails=self._chance.random() < self._failing)

    def demonstrate(self, problem, *, chance):
        word = problem.data["word"]
        return Dialogue(((word, f"{word} {chance.choice([*RIGHT.values()])}"),))


class WordsEnv:
    def __init__(self, word, *, fails):
        self._word = word
        self._fails = fails
        self._said = ""

    async def reset(self):
        return Observation(text=self._word)

    async def respond(self, reply):
        if self._fails:
            raise InfraFailed("a planted failure")
        self._said = reply
        return Observation(text="", done=True)

    async def score(self):
        return float(self._said == f"{self._word} {RIGHT[self._word]}")

    async def aclose(self):
        pass


class SometimesSlow(WordsTask):
    """After the first batch every third problem takes longer than any step."""

    def env(self, problem, *, trajectory):
        number = int(problem.id)
        is_slow = number > 6 and number % 3 == 0
        return (SlowEnv if is_slow else WordsEnv)(problem.data["word"], fails=False)


class SlowEnv(WordsEnv):
    async def respond(self, reply):
        await asyncio.sleep(3600)


def settings(seed, steps, **fields):
    given = {
        "name": "small",
        "groups": 6,
        "environments": 48,
        "retries": 0,
        "train": TrainSettings(epochs=4, min_samples=8, lr=1e-3, kl=0.03),
        "checkpoint_every": 1,
    }
    return RunSettings(seed=seed, steps=steps, **{**given, **fields})


def model(directory, seed=0):
    from artangram.pipeline.warmup import warm_model

    return warm_model(
        directory,
        tasks=[WordsTask()],
        vocabulary=Vocabulary(sorted({*RIGHT, *RIGHT.values()})),
        seed=seed,
        settings=WarmupSettings(steps=80, batch=16),
    )


async def run(
    out, seed, steps, *, resume=False, task=None, on_step=None, engines=None, exam=None, **fields
):
    """A whole run; the training as it was at its end."""
    from artangram.pipeline.loops import LOOPS
    from artangram.pipeline.opening import open_training

    place = await asyncio.to_thread(model, out.parent / "models")
    async with open_training(
        settings(seed, steps, **fields),
        tasks=[task or WordsTask()],
        model=place,
        out=out,
        engines=engines,
        resume=resume,
        exam_tasks=[] if exam is None else [exam],
    ) as training:
        if on_step is not None:
            training.on_step = partial(on_step, training)
        await LOOPS[training.settings.mode](training)
        await training.examined()
        return training


if __name__ == "__main__":
    asyncio.run(
        run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), resume="resume" in sys.argv)
    )
