"""The demo's tasks without their resources: what they ask, show and refuse."""

import asyncio
from itertools import islice
from random import Random
from types import SimpleNamespace

import pytest

from artangram.core.errors import InfraFailed
from artangram.core.records import Outcome
from artangram.envs.tasks import DEMO_TASKS, demo_task, vocabulary
from artangram.envs.tasks.calc import worked_out
from artangram.envs.tasks.dialogue import parsed
from artangram.envs.tasks.repair import EDITS, WANTED, RepairTask, suite
from artangram.envs.tasks.search import QUESTIONS, fact
from artangram.envs.tasks.shared import Shared


class FakePlace:
    """A sandbox whose commands end as told."""

    def __init__(self, house):
        self._house = house

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def close(self):
        pass

    async def write(self, path, data):
        pass

    async def run(self, argv, **options):
        self._house.runs += 1
        await asyncio.sleep(1)
        return SimpleNamespace(
            outcome=self._house.outcome, exit_code=self._house.exit_code, stdout="", reason="told"
        )


class FakeHouse:
    def __init__(self, outcome=Outcome.SUCCEEDED, exit_code=0):
        self.outcome, self.exit_code, self.runs = outcome, exit_code, 0

    def trajectory(self, **options):
        return FakePlace(self)


def some(name, count=200, *, held_out=False, seed=0):
    return list(islice(demo_task(name, FakeHouse(), held_out=held_out).problems(seed), count))


@pytest.mark.parametrize("name", DEMO_TASKS)
def test_the_same_seed_gives_the_same_problems(name):
    assert some(name) == some(name)
    assert some(name) != some(name, seed=1)


@pytest.mark.parametrize("name", DEMO_TASKS)
def test_no_held_out_problem_is_ever_trained_on(name):
    trained = {problem.id for problem in some(name, 2000)}
    assert not trained & {problem.id for problem in some(name, 200, held_out=True)}


@pytest.mark.parametrize("name", DEMO_TASKS)
def test_demonstrations_are_made_of_known_words(name):
    task, words = demo_task(name, FakeHouse()), vocabulary()
    chance = Random(0)
    for problem in islice(task.problems(0), 200):
        for saw, said in task.demonstrate(problem, chance=chance).turns:
            assert words.decode(words.encode(saw)) == saw
            assert words.decode(words.encode(said)) == said
            assert len(words.encode(said)) < task.max_tokens


def test_demonstrations_are_right_by_chance_only():
    """Imitating them must not be worth more than a guess: the rest is for rewards to teach."""
    chance, task = Random(0), demo_task("repair", FakeHouse())
    right = [
        parsed(task.demonstrate(problem, chance=chance).turns[0][1]).verb
        == WANTED[problem.data["function"]]
        for problem in islice(task.problems(0), 2000)
    ]
    assert sum(right) / len(right) == pytest.approx(1 / len(EDITS), abs=0.03)


@pytest.mark.parametrize(
    ("reply", "understood"),
    [
        ("read 37", ("", "read", "37")),
        ("divisor gcd 18,90", ("divisor", "gcd", "18,90")),
        ("larger max", ("larger", "max", "")),
        ("max", ("", "max", "")),
        ("", ("", "", "")),
        ("4 2", ("", "", "42")),
    ],
)
def test_replies_are_a_thought_a_verb_and_the_rest(reply, understood):
    said = parsed(reply)
    assert (said.thought, said.verb, said.rest) == understood


def test_tools_work_out_what_they_are_named_after():
    found = {v: worked_out(v, "12,18") for v in ("gcd", "lcm", "primes")}
    assert found == {"gcd": "6", "lcm": "36", "primes": "2"}
    assert worked_out("bits", "7") == "3"
    assert worked_out("gcd", "7") is None


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("number", range(3))
def test_a_suite_tells_the_right_edit_from_all_others(name, number):
    cases = eval(suite(name, number).split('"wanted"), ')[1].split(")\ndef")[0])
    passing = [
        edit for edit, (_, f) in EDITS.items() if all(f(a, b) == wanted for a, b, wanted in cases)
    ]
    assert passing == [WANTED[name]]


def test_every_index_knows_something_else():
    for number in range(10, 100):
        assert len({fact(index, number) for index in QUESTIONS}) == len(QUESTIONS)


@pytest.mark.looptime
async def test_equal_suites_are_run_once_for_all_who_ask():
    house = FakeHouse()
    task = RepairTask(house)
    scores = await asyncio.gather(*(task.tested("s", "t", trajectory=f"{i}") for i in range(5)))
    assert (scores, house.runs) == ([1.0] * 5, 1)


@pytest.mark.looptime
async def test_a_cancelled_asker_leaves_the_run_to_the_next():
    house = FakeHouse()
    task = RepairTask(house)
    first = asyncio.create_task(task.tested("s", "t", trajectory="1"))
    second = asyncio.create_task(task.tested("s", "t", trajectory="2"))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == 1.0
    assert house.runs == 2


@pytest.mark.looptime
async def test_a_suite_that_could_not_run_is_no_reward_of_zero():
    for house in (FakeHouse(Outcome.INFRA_FAILED, None), FakeHouse(Outcome.FAILED, 3)):
        with pytest.raises(InfraFailed):
            await RepairTask(house).tested("s", "t", trajectory="1")
    assert await RepairTask(FakeHouse(Outcome.FAILED, 1)).tested("s", "t", trajectory="1") == 0.0


@pytest.mark.looptime
async def test_only_what_is_asked_at_the_same_time_is_shared_unless_kept():
    calls = []

    async def ask():
        calls.append(1)
        await asyncio.sleep(1)
        return len(calls)

    passing, kept = Shared(keeps=False), Shared(keeps=True)
    assert await asyncio.gather(*(passing.once("q", ask) for _ in range(3))) == [1, 1, 1]
    assert await passing.once("q", ask) == 2
    assert [await kept.once("q", ask), await kept.once("q", ask)] == [3, 3]
