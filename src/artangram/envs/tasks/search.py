"""Look something up: choose the index, ask a rate-limited API, answer what it said.

Two turns: `who runs 48` -> `who people 48` -> `731` -> `answer 731`. Every index knows something
about every number, so that only the reward tells the right one from the others. The API is
`searchserver`.
"""

from collections.abc import Iterator
from random import Random

from artangram.core.errors import CallFailed
from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.dialogue import ANSWER, ERROR, Dialogue, is_held_out, parsed
from artangram.envs.tasks.house import House

NAME = "search"
API = "search"
QUESTIONS = {
    "people": "who runs",
    "places": "where is",
    "dates": "when was",
    "sizes": "how big is",
}
WORDS = set(QUESTIONS) | {word for text in QUESTIONS.values() for word in text.split()}
SHOWN_GUESSING = 0.1
"""The share of demonstrations that answer without asking."""


class SearchTask:
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 3
    max_tokens = 8

    def __init__(self, house: House, *, job: str = "demo", held_out: bool = False) -> None:
        self._house = house
        self._job = job
        self._held_out = held_out

    def problems(self, seed: int) -> Iterator[Problem]:
        chance = Random(f"{NAME}-{seed}")
        while True:
            index = chance.choice(list(QUESTIONS))
            number = chance.randrange(10, 100)
            if is_held_out(list(QUESTIONS).index(index), number) is not self._held_out:
                continue
            data = {"index": index, "number": number}
            yield Problem(id=f"{NAME}/{index}/{number}", task=NAME, data=data)

    def env(self, problem: Problem, *, trajectory: str) -> "SearchEnv":
        return SearchEnv(problem, self._house, job=self._job)

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

    def __init__(self, problem: Problem, house: House, *, job: str) -> None:
        self._problem = problem
        self._house = house
        self._job = job
        self._answer = ""

    async def reset(self) -> Observation:
        return Observation(text=question(self._problem))

    async def respond(self, reply: str) -> Observation:
        said = parsed(reply)
        if said.verb == ANSWER:
            self._answer = said.rest
            return Observation(text="", done=True)
        if said.verb not in QUESTIONS:
            return Observation(text=ERROR, done=True, failed=True)
        return Observation(text=await self._looked_up(said.verb, said.rest))

    async def score(self) -> float:
        data = self._problem.data
        return float(self._answer == str(fact(data["index"], data["number"])))

    async def aclose(self) -> None:
        pass

    async def _looked_up(self, index: str, wanted: str) -> str:
        try:
            found = await self._house.api(API).get(
                f"/{index}", params={"q": wanted}, kind=f"{NAME}/api", job=self._job, task=NAME
            )
        except CallFailed:
            return ERROR
        return found.text


def question(problem: Problem) -> str:
    return f"{QUESTIONS[problem.data['index']]} {problem.data['number']}"


def fact(index: str, number: int) -> int:
    """What the index knows about the number: three digits, different in every index."""
    place = list(QUESTIONS).index(index)
    return 100 + (number * 389 + place * 227) % 900
