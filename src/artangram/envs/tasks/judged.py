"""Find the word that fits: a model that knows meanings is the judge.

One turn: `name salmon and trout` -> `salmon fish`. The judge is a service of the house that says
how alike two texts are. It was never told what is right; the threshold only says how alike is
enough.
"""

from collections.abc import Iterator
from random import Random

from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.dialogue import ERROR, Dialogue, is_held_out, parsed
from artangram.envs.tasks.house import House
from artangram.envs.tasks.shared import Shared

NAME = "judged"
ASK = "name"
SERVICE = "judge"
KINDS = {
    "fish": ("salmon", "trout", "tuna"),
    "bird": ("eagle", "sparrow", "pigeon"),
    "fruit": ("apple", "banana", "cherry"),
    "vehicle": ("truck", "car", "bus"),
}
WORDS = {ASK, "and", *KINDS} | {word for words in KINDS.values() for word in words}
ALIKE = 0.45
"""With MiniLM the fitting word has 0.51 or more for every pair, any other 0.40 or less."""


class JudgedTask:
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 1
    max_tokens = 6

    def __init__(self, house: House, *, job: str = "demo", held_out: bool = False) -> None:
        self._house = house
        self._job = job
        self._held_out = held_out
        self._asked = Shared[float](keeps=False)

    def problems(self, seed: int) -> Iterator[Problem]:
        chance = Random(f"{NAME}-{seed}")
        while True:
            kind = chance.choice(list(KINDS))
            one, other = chance.sample(range(3), 2)
            if is_held_out(list(KINDS).index(kind), one, other) is not self._held_out:
                continue
            text = f"{KINDS[kind][one]} and {KINDS[kind][other]}"
            yield Problem(id=f"{NAME}/{text}", task=NAME, data={"text": text})

    def env(self, problem: Problem, *, trajectory: str) -> "JudgedEnv":
        return JudgedEnv(problem, self)

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        said = f"{problem.data['text'].split()[0]} {chance.choice(list(KINDS))}"
        return Dialogue(((f"{ASK} {problem.data['text']}", said),))

    async def likeness(self, word: str, text: str) -> float:
        """What the judge says; siblings that say the same at the same time ask once."""
        return await self._asked.once((word, text), lambda: self._ask(word, text))

    async def _ask(self, word: str, text: str) -> float:
        answer = await self._house.call(
            SERVICE,
            {"text": word, "reference": text},
            kind=f"{NAME}/judge",
            job=self._job,
            task=NAME,
        )
        return float(answer["score"])


class JudgedEnv:
    """See `envs.protocol.Env`."""

    def __init__(self, problem: Problem, task: JudgedTask) -> None:
        self._text = problem.data["text"]
        self._task = task
        self._word: str | None = None

    async def reset(self) -> Observation:
        return Observation(text=f"{ASK} {self._text}")

    async def respond(self, reply: str) -> Observation:
        said = parsed(reply)
        if not said.verb or said.rest:
            return Observation(text=ERROR, done=True, failed=True)
        self._word = said.verb
        return Observation(text="", done=True)

    async def score(self) -> float:
        if self._word is None:
            return 0.0
        return float(await self._task.likeness(self._word, self._text) >= ALIKE)

    async def aclose(self) -> None:
        pass
