"""Questions about numbers: read the file, choose the tool, answer. Everything runs in a sandbox.

Three turns when all goes well: `calc 37` -> `read 37` -> the question -> `divisor gcd 18,90` ->
`18` -> `answer 18`. The tools are lines of shell, so that a turn costs milliseconds.
"""

import math
from collections.abc import Callable, Sequence
from random import Random

from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.base import MISSPOKEN, DemoTask
from artangram.envs.tasks.client import TaskSandbox, judged_by_itself
from artangram.envs.tasks.dialogue import ANSWER, ERROR, Dialogue, parsed

NAME = "calc"
READ = "read"
TOOLS = {
    "gcd": 'a=$1; b=${2:?}; while [ "$b" -gt 0 ]; do t=$((a % b)); a=$b; b=$t; done; echo "$a"',
    "lcm": 'a=$1; b=${2:?}; while [ "$b" -gt 0 ]; do t=$((a % b)); a=$b; b=$t; done; '
    "echo $(($1 / a * $2))",
    "primes": 'c=0; n=$1; while [ "$n" -le "${2:?}" ]; do p=$((n > 1)); d=2; '
    'while [ $((d * d)) -le "$n" ]; do [ $((n % d)) -eq 0 ] && p=0 && break; d=$((d + 1)); done; '
    'c=$((c + p)); n=$((n + 1)); done; echo "$c"',
    "bits": '[ -z "$2" ] || exit 1; n=$1; c=0; '
    'while [ "$n" -gt 0 ]; do c=$((c + n % 2)); n=$((n / 2)); done; echo "$c"',
}
QUESTIONS = {
    "gcd": "greatest divisor of",
    "lcm": "least multiple of",
    "primes": "primes between",
    "bits": "ones in binary",
}
POINT = {"gcd": "divisor", "lcm": "multiple", "primes": "primes", "bits": "ones"}
"""The word of each question that matters."""
WORDS = {NAME, READ, *TOOLS} | {word for text in QUESTIONS.values() for word in text.split()}
MOST_DIGITS = 3
"""Of a number that a tool takes; a loop over a longer one would take seconds."""
SHOWN_READING = 0.7
"""The share of demonstrations that read the question before they use a tool."""


class CalcTask(DemoTask):
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 4
    max_tokens = 14

    def drawn(self, chance: Random) -> tuple[Problem, Sequence[int]]:
        verb = chance.choice(list(TOOLS))
        numbers = _numbers(verb, chance)
        question = f"{QUESTIONS[verb]} {_joined(numbers)}"
        data = {"file": str(chance.randrange(10, 100)), "question": question, "verb": verb}
        return Problem(id=f"{NAME}/{verb}/{_joined(numbers)}", task=NAME, data=data), numbers

    def env(self, problem: Problem, *, trajectory: str) -> "CalcEnv":
        place = self.client.trajectory(
            job=self.job, task=NAME, problem=problem.id, memory_mb=64, id=trajectory
        )
        return CalcEnv(problem, place)

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        file, question = problem.data["file"], problem.data["question"]
        turns = []
        saw, thought, known = f"{NAME} {file}", NAME, file
        if chance.random() < SHOWN_READING:
            turns.append((saw, f"{READ} {file}"))
            saw, thought, known = question, POINT[problem.data["verb"]], question.split()[-1]
        verb = chance.choice(list(TOOLS))
        turns.append((saw, f"{thought} {verb} {known}"))
        result = worked_out(verb, known) or ERROR
        turns.append((result, f"{ANSWER} {known if result == ERROR else result}"))
        return Dialogue(tuple(turns))


class CalcEnv:
    """See `envs.protocol.Env`."""

    def __init__(self, problem: Problem, place: TaskSandbox) -> None:
        self._data = problem.data
        self._place = place
        self._answer = ""

    @property
    def queued_s(self) -> float:
        return self._place.queued_s

    async def reset(self) -> Observation:
        await self._place.__aenter__()
        await self._place.write(f"{self._data['file']}.txt", self._data["question"])
        return Observation(text=f"{NAME} {self._data['file']}")

    async def respond(self, reply: str) -> Observation:
        said = parsed(reply)
        if said.verb == ANSWER:
            self._answer = said.rest
            return Observation(text="", done=True)
        if said.verb == READ and said.rest.isdecimal():
            return await self._ran(["/bin/cat", f"{said.rest}.txt"], kind=f"{NAME}/read")
        if said.verb in TOOLS:
            return await self._used(said.verb, said.rest)
        return MISSPOKEN

    async def score(self) -> float:
        question = self._data["question"]
        return float(self._answer == worked_out(self._data["verb"], question.rpartition(" ")[2]))

    async def aclose(self) -> None:
        await self._place.close()

    async def _used(self, verb: str, rest: str) -> Observation:
        numbers = rest.split(",")
        if not all(number.isdecimal() and len(number) <= MOST_DIGITS for number in numbers):
            return Observation(text=ERROR)
        return await self._ran(
            ["/bin/sh", "-c", TOOLS[verb], verb, *numbers[:2]], kind=f"{NAME}/tool"
        )

    async def _ran(self, argv: list[str], *, kind: str) -> Observation:
        # Reading and reckoning change nothing: they may be done again elsewhere, but the file
        # would be missing there, so a lost sandbox ends the attempt.
        ran = await self._place.run(argv, kind=kind, timeout_s=10)
        return Observation(text=ran.stdout.strip() if judged_by_itself(ran) else ERROR)


def worked_out(verb: str, numbers: str) -> str | None:
    """What the tool says, without a sandbox; `None` where it fails."""
    given = [int(number) for number in numbers.split(",")]
    if len(given) != (1 if verb == "bits" else 2):
        return None
    return str(_PYTHON[verb](*given))


def _primes(low: int, high: int) -> int:
    return sum(
        n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(low, high + 1)
    )


_PYTHON: dict[str, Callable[..., int]] = {
    "gcd": math.gcd,
    "lcm": math.lcm,
    "primes": _primes,
    "bits": int.bit_count,
}


def _numbers(verb: str, chance: Random) -> list[int]:
    if verb == "bits":
        return [chance.randrange(10, 1000)]
    pair = [chance.randrange(2, 100), chance.randrange(2, 100)]
    return sorted(pair) if verb == "primes" else pair


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))
