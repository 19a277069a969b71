"""Mend a function: choose the edit, and a real test suite says whether it was the right one.

One turn: `repair larger 9,4 gives 4` -> `larger max`. The score is what pytest says of the edited
file. Attempts that end at about the same time are tested in one elastic run, each with a file and
a suite of its own: starting pytest takes longer than all their tests.
"""

import sys
from collections.abc import Callable, Sequence
from random import Random

import msgspec
from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.envs.elastictest import command, one_file
from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.base import MISSPOKEN, DemoTask
from artangram.envs.tasks.client import TaskClient, TaskSandbox, judged_by_itself
from artangram.envs.tasks.dialogue import Dialogue, parsed
from artangram.envs.tasks.together import Together

NAME = "repair"
EDITS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "plus": ("a + b", lambda a, b: a + b),
    "minus": ("a - b", lambda a, b: a - b),
    "times": ("a * b", lambda a, b: a * b),
    "max": ("max(a, b)", max),
    "min": ("min(a, b)", min),
}
WANTED = {
    "total": "plus",
    "difference": "minus",
    "product": "times",
    "larger": "max",
    "smaller": "min",
}
WORDS = {NAME, "gives", *EDITS, *WANTED}
PROGRAM, REPORT = "elastic.pyz", "report.json"
PYTEST = ("-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=no")
"""Only whether a test failed counts: leaving out why halves what a test costs."""
MEMORY_MB = 256
MOST_CORES = 2
GATHER_S = 0.1
"""Attempts wait so long for others to be tested with: less than half of what a start takes."""
TESTS_FAILED = 1
"""Pytest's exit code for a suite that ran and has failures."""


class Edited(Struct, frozen=True):
    """What an attempt made of a function, and which suite is to judge it."""

    function: str
    edit: str
    suite: int


class RepairTask(DemoTask):
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 1
    max_tokens = 6

    def __init__(self, client: TaskClient, *, job: str = "demo", held_out: bool = False) -> None:
        super().__init__(client, job=job, held_out=held_out)
        self._runs = Together(self._tested, gather_s=GATHER_S)

    def drawn(self, chance: Random) -> tuple[Problem, Sequence[int]]:
        name = chance.choice(list(WANTED))
        wrong = chance.choice([edit for edit in EDITS if edit != WANTED[name]])
        a, b = chance.sample(range(2, 100), 2)
        gives = str(abs(EDITS[wrong][1](a, b)))[:2]
        data = {
            "function": name,
            "text": f"{NAME} {name} {a},{b} gives {gives}",
            "suite": 100 * a + b,
        }
        return Problem(id=f"{NAME}/{name}/{wrong}/{a},{b}", task=NAME, data=data), (a, b)

    def env(self, problem: Problem, *, trajectory: str) -> "RepairEnv":
        return RepairEnv(problem, self)

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        edit = chance.choice(list(EDITS))
        return Dialogue(((problem.data["text"], f"{problem.data['function']} {edit}"),))

    async def passes(self, edited: Edited) -> bool:
        """Whether its suite passes; it is run for this attempt, together with those of others."""
        return await self._runs.answer(edited)

    async def _tested(self, each: Sequence[Edited]) -> list[bool]:
        place = self.client.trajectory(job=self.job, task=NAME, memory_mb=MEMORY_MB)
        async with place:
            await place.write(PROGRAM, one_file())
            for number, edited in enumerate(each):
                await place.write(f"solution_{number}.py", solution(edited))
                await place.write(f"test_{number}.py", suite(edited, f"solution_{number}"))
            await _run_pytest(place)
            found = msgspec.json.decode(await place.read(REPORT), type=_Report)
        return [found.passed(f"test_{number}.py") for number in range(len(each))]


class _Test(Struct):
    id: str
    outcome: str


class _Report(Struct):
    """What is read of the report of a run."""

    tests: list[_Test]

    def passed(self, file: str) -> bool:
        """Whether all tests of a file passed. Raises `InfraFailed` if none was run."""
        outcomes = {test.outcome for test in self.tests if test.id.startswith(f"{file}::")}
        if not outcomes:
            raise InfraFailed(f"{file} was not run, which says nothing of the edit")
        return outcomes == {"passed"}


async def _run_pytest(place: TaskSandbox) -> None:
    """Raises `InfraFailed` when the run says nothing of the edits."""
    ran = await place.run(
        command([*PYTEST, "--report", REPORT], python=sys.executable, program=PROGRAM),
        cpu={"min": 1, "max": MOST_CORES},
        kind=f"{NAME}/test",
        timeout_s=60,
        environ={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    if not judged_by_itself(ran) and ran.exit_code != TESTS_FAILED:
        said = (ran.stdout + ran.stderr).strip()
        raise InfraFailed(f"pytest ended with {ran.exit_code}: {said[-200:]}")


class RepairEnv:
    """See `envs.protocol.Env`."""

    def __init__(self, problem: Problem, task: RepairTask) -> None:
        self._data = problem.data
        self._task = task
        self._edit: str | None = None

    async def reset(self) -> Observation:
        return Observation(text=self._data["text"])

    async def respond(self, reply: str) -> Observation:
        said = parsed(reply)
        if said.verb not in EDITS or said.rest:
            return MISSPOKEN
        self._edit = said.verb
        return Observation(text="", done=True)

    async def score(self) -> float:
        if self._edit is None:
            return 0.0
        edited = Edited(self._data["function"], self._edit, self._data["suite"])
        return float(await self._task.passes(edited))

    async def aclose(self) -> None:
        pass


def solution(edited: Edited) -> str:
    return f"def {edited.function}(a, b):\n    return {EDITS[edited.edit][0]}\n"


def cases(function: str, number: int) -> list[tuple[int, int, int]]:
    """Two numbers and what the function should give, so that only one edit is right for all."""
    chance = Random(f"{function}-{number}")
    found = []
    for low_first in (True, False):
        low, high = sorted(chance.sample(range(3, 60), 2))
        a, b = (low, high) if low_first else (high, low)
        found.append((a, b, EDITS[WANTED[function]][1](a, b)))
    return found


def suite(edited: Edited, module: str) -> str:
    """The test file of an attempt, whose function is in `module`."""
    name = edited.function
    return (
        "import pytest\n"
        f"from {module} import {name}\n\n\n"
        f'@pytest.mark.parametrize(("a", "b", "wanted"), {cases(name, edited.suite)})\n'
        f"def test_{name}(a, b, wanted):\n"
        f"    assert {name}(a, b) == wanted\n"
    )
