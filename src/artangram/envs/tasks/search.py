"""Look something up: choose the index, ask a rate-limited API, answer what it said.

Two turns: `who runs 48` -> `who people 48` -> `731` -> `answer 731`. Every index knows something
about every number, so that only the reward tells the right one from the others. The API is
`searchserver`.
"""

from collections.abc import Sequence
from random import Random

from artangram.core.errors import CallFailed
from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.base import MISSPOKEN, DemoTask
from artangram.envs.tasks.dialogue import ANSWER, ERROR, Dialogue, parsed

NAME = "search"
API = "search"
QUESTIONS = {
    "people": "who runs",
    "places": "where is",
    "dates": "when was",
    "sizes": "how big is",
    "prices": "what costs",
}
WORDS = set(QUESTIONS) | {word for text in QUESTIONS.values() for word in text.split()}
SHOWN_GUESSING = 0.1
"""The share of demonstrations that answer without asking."""


class SearchTask(DemoTask):
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 3
    max_tokens = 8

    def drawn(self, chance: Random) -> tuple[Problem, Sequence[int]]:
        place, number = chance.randrange(len(QUESTIONS)), chance.randrange(10, 100)
        index = list(QUESTIONS)[place]
        data = {"index": index, "number": number}
        return Problem(id=f"{NAME}/{index}/{number}", task=NAME, data=data), (place, number)

    def env(self, problem: Problem, *, trajectory: str) -> "SearchEnv":
        return SearchEnv(problem, self)

    async def looked_up(self, index: str, wanted: str) -> str:
        """What the API says, or that it was an error."""
        try:
            found = await self.client.api(API).get(
                f"/{index}", params={"q": wanted}, kind=f"{NAME}/api", job=self.job, task=NAME
            )
        except CallFailed:
            return ERROR
        return found.text

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        number = problem.data["number"]
        saw = question(problem)
        if chance.random() < SHOWN_GUESSING:
            return Dialogue(((saw, f"{ANSWER} {number}"),))
        index = chance.choice(list(QUESTIONS))
        found = fact(index, number)
        return Dialogue(
            ((saw, f"{saw.split()[0]} {index} {number}"), (str(found), f"{ANSWER} {found}"))
        )


class SearchEnv:
    """See `envs.protocol.Env`."""

    def __init__(self, problem: Problem, task: SearchTask) -> None:
        self._problem = problem
        self._task = task
        self._answer = ""

    async def reset(self) -> Observation:
        return Observation(text=question(self._problem))

    async def respond(self, reply: str) -> Observation:
        said = parsed(reply)
        if said.verb == ANSWER:
            self._answer = said.rest
            return Observation(text="", done=True)
        if said.verb not in QUESTIONS:
            return MISSPOKEN
        return Observation(text=await self._task.looked_up(said.verb, said.rest))

    async def score(self) -> float:
        data = self._problem.data
        return float(self._answer == str(fact(data["index"], data["number"])))

    async def aclose(self) -> None:
        pass


def question(problem: Problem) -> str:
    return f"{QUESTIONS[problem.data['index']]} {problem.data['number']}"


def fact(index: str, number: int) -> int:
    """What the index knows about the number: three digits, different in every index."""
    place = list(QUESTIONS).index(index)
    return 100 + (number * 389 + place * 227) % 900
