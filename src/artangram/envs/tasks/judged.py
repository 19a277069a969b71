"""Find the word that fits: a model that knows meanings is the judge.

One turn: `name salmon and trout` -> `salmon fish`. The judge is a service of the client that says
how alike two texts are. It was never told what is right; the threshold only says how alike is
enough.
"""

from collections.abc import Sequence
from random import Random

from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.base import MISSPOKEN, DemoTask
from artangram.envs.tasks.client import TaskClient
from artangram.envs.tasks.dialogue import Dialogue, parsed
from artangram.envs.tasks.together import Together

NAME = "judged"
ASK = "name"
SERVICE = "judge"
KINDS = {
    "fish": ("salmon", "trout", "tuna"),
    "bird": ("eagle", "sparrow", "pigeon"),
    "fruit": ("apple", "banana", "cherry"),
    "vehicle": ("truck", "car", "bus"),
    "metal": ("iron", "copper", "zinc"),
}
WORDS = {ASK, "and", *KINDS} | {word for words in KINDS.values() for word in words}
ALIKE = 0.45
"""With MiniLM the fitting word has 0.52 or more for every pair, any other 0.40 or less."""
GATHER_S = 0.01


class JudgedTask(DemoTask):
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 1
    max_tokens = 6

    def __init__(self, client: TaskClient, *, job: str = "demo", held_out: bool = False) -> None:
        super().__init__(client, job=job, held_out=held_out)
        self._asked = Together(self._judged, gather_s=GATHER_S)

    def drawn(self, chance: Random) -> tuple[Problem, Sequence[int]]:
        kind = chance.randrange(len(KINDS))
        one, other = chance.sample(range(3), 2)
        words = list(KINDS.values())[kind]
        text = f"{words[one]} and {words[other]}"
        return Problem(id=f"{NAME}/{text}", task=NAME, data={"text": text}), (kind, one, other)

    def env(self, problem: Problem, *, trajectory: str) -> "JudgedEnv":
        return JudgedEnv(problem, self)

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        said = f"{problem.data['text'].split()[0]} {chance.choice(list(KINDS))}"
        return Dialogue(((f"{ASK} {problem.data['text']}", said),))

    async def likeness(self, word: str, text: str) -> float:
        """What the judge says; it is asked about several attempts at once."""
        return await self._asked.answer({"text": word, "reference": text})

    async def _judged(self, pairs: Sequence[dict[str, str]]) -> list[float]:
        answers = await self.client.call(
            SERVICE, list(pairs), kind=f"{NAME}/judge", job=self.job, task=NAME
        )
        return [float(answer["score"]) for answer in answers]


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
            return MISSPOKEN
        self._word = said.verb
        return Observation(text="", done=True)

    async def score(self) -> float:
        if self._word is None:
            return 0.0
        return float(await self._task.likeness(self._word, self._text) >= ALIKE)

    async def aclose(self) -> None:
        pass
