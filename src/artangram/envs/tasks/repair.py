"""Mend a function: choose the edit, and a real test suite says whether it was the right one.

One turn: `repair larger 9,4 gives 4` -> `larger max`. The score is an elastic pytest run on the
edited file in a sandbox of its own. The same file with the same tests is run once, however many
attempts come to it: a suite takes longer than everything else in the demo.
"""

import sys
from collections.abc import Callable, Iterator
from random import Random

from artangram.core.errors import InfraFailed
from artangram.envs.elastictest import command, one_file
from artangram.envs.protocol import Observation, Problem
from artangram.envs.tasks.dialogue import ERROR, Dialogue, is_held_out, parsed
from artangram.envs.tasks.house import House, judged_by_itself
from artangram.envs.tasks.shared import Shared

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
NUM_SUITES = 2
"""Different test files per function: so many suites are worth running, and no more."""
MEMORY_MB = 256
TESTS_FAILED = 1
"""Pytest's exit code for a suite that ran and has failures."""


class RepairTask:
    """See `envs.protocol.Task`."""

    name = NAME
    max_turns = 1
    max_tokens = 6

    def __init__(self, house: House, *, job: str = "demo", held_out: bool = False) -> None:
        self._house = house
        self._job = job
        self._held_out = held_out
        self._runs = Shared[float](keeps=True)

    def problems(self, seed: int) -> Iterator[Problem]:
        chance = Random(f"{NAME}-{seed}")
        while True:
            name = chance.choice(list(WANTED))
            wrong = chance.choice([edit for edit in EDITS if edit != WANTED[name]])
            a, b = chance.randrange(2, 100), chance.randrange(2, 100)
            if a == b or is_held_out(a, b) is not self._held_out:
                continue
            gives = str(abs(EDITS[wrong][1](a, b)))[:2]
            yield Problem(
                id=f"{NAME}/{name}/{wrong}/{a},{b}",
                task=NAME,
                data={
                    "function": name,
                    "text": f"{NAME} {name} {a},{b} gives {gives}",
                    "suite": chance.randrange(NUM_SUITES) + NUM_SUITES * self._held_out,
                },
            )

    def env(self, problem: Problem, *, trajectory: str) -> "RepairEnv":
        return RepairEnv(problem, self, trajectory=trajectory)

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        edit = chance.choice(list(EDITS))
        return Dialogue(((problem.data["text"], f"{problem.data['function']} {edit}"),))

    async def tested(self, source: str, tests: str, *, trajectory: str) -> float:
        """1 if the tests pass on the source, 0 if not; run once for all who ask."""
        return await self._runs.once((source, tests), lambda: self._run(source, tests, trajectory))

    async def _run(self, source: str, tests: str, trajectory: str) -> float:
        place = self._house.trajectory(job=self._job, task=NAME, memory_mb=MEMORY_MB, id=trajectory)
        async with place:
            await place.write("solution.py", source)
            await place.write("test_solution.py", tests)
            await place.write("elastic.pyz", one_file())
            ran = await place.run(
                command(
                    ["-q", "-p", "no:cacheprovider", "test_solution.py"],
                    python=sys.executable,
                    program="elastic.pyz",
                ),
                cpu={"min": 1, "max": 2},
                kind=f"{NAME}/test",
                timeout_s=60,
                environ={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            )
        if not judged_by_itself(ran) and ran.exit_code not in (TESTS_FAILED, None):
            # Neither passed nor failed: the suite did not run, which says nothing of the edit.
            raise InfraFailed(f"pytest ended with {ran.exit_code}: {ran.stdout[-200:]}")
        return float(ran.exit_code == 0)


class RepairEnv:
    """See `envs.protocol.Env`."""

    def __init__(self, problem: Problem, task: RepairTask, *, trajectory: str) -> None:
        self._data = problem.data
        self._task = task
        self._trajectory = trajectory
        self._edit: str | None = None

    async def reset(self) -> Observation:
        return Observation(text=self._data["text"])

    async def respond(self, reply: str) -> Observation:
        said = parsed(reply)
        if said.verb not in EDITS or said.rest:
            return Observation(text=ERROR, done=True, failed=True)
        self._edit = said.verb
        return Observation(text="", done=True)

    async def score(self) -> float:
        if self._edit is None:
            return 0.0
        name = self._data["function"]
        source = f"def {name}(a, b):\n    return {EDITS[self._edit][0]}\n"
        tests = suite(name, self._data["suite"])
        return await self._task.tested(source, tests, trajectory=self._trajectory)

    async def aclose(self) -> None:
        pass


def suite(name: str, number: int) -> str:
    """A test file for a function; its examples tell all edits apart."""
    chance = Random(f"{name}-{number}")
    cases = []
    for _ in range(4):
        a, b = sorted(chance.sample(range(3, 60), 2))
        pair = (b, a) if chance.random() < 0.5 else (a, b)
        cases.append((*pair, EDITS[WANTED[name]][1](*pair)))
    return (
        "import pytest\n"
        f"from solution import {name}\n\n\n"
        f'@pytest.mark.parametrize(("a", "b", "wanted"), {cases})\n'
        f"def test_{name}(a, b, wanted):\n"
        f"    assert {name}(a, b) == wanted\n"
    )
