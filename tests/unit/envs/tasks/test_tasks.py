"""The demo's tasks without their resources: what they ask, show and refuse."""

import asyncio
import json
from itertools import islice
from random import Random
from types import SimpleNamespace

import pytest

from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.envs.tasks import DEMO_TASKS, demo_task, vocabulary
from artangram.envs.tasks.calc import worked_out
from artangram.envs.tasks.dialogue import parsed
from artangram.envs.tasks.judged import JudgedTask
from artangram.envs.tasks.repair import EDITS, WANTED, Edited, RepairTask, cases
from artangram.envs.tasks.search import QUESTIONS, fact


class FakePlace:
    """A sandbox whose commands end as told; its report says that the first file fails."""

    queued_s = 1.5

    def __init__(self, client):
        self._client = client
        self.files = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def close(self):
        pass

    async def write(self, path, data):
        self.files.append(path)

    async def read(self, path):
        tests = [name for name in self.files if name.startswith("test_")][: self._client.reported]
        each = [
            {"id": f"{name}::test_{n}", "outcome": "failed" if i == n == 0 else "passed"}
            for i, name in enumerate(tests)
            for n in range(2)
        ]
        return json.dumps({"tests": each}).encode()

    async def run(self, argv, **options):
        self._client.runs += 1
        await asyncio.sleep(1)
        return SimpleNamespace(
            outcome=self._client.outcome,
            exit_code=self._client.exit_code,
            stdout="",
            stderr="No module named 'pytest'\n",
            reason="told",
            start_error=self._client.start_error,
        )


class FakeTaskClient:
    def __init__(self, outcome=Outcome.FAILED, exit_code=1, *, reported=100, start_error=""):
        self.outcome, self.exit_code, self.reported, self.runs = outcome, exit_code, reported, 0
        self.start_error = start_error

    def trajectory(self, **options):
        return FakePlace(self)

    async def call(self, service, payload, **options):
        self.runs += 1
        return [{"score": len(pair["text"])} for pair in payload]


def some(name, count=200, *, held_out=False, seed=0):
    return list(islice(demo_task(name, FakeTaskClient(), held_out=held_out).problems(seed), count))


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
    task, words = demo_task(name, FakeTaskClient()), vocabulary()
    chance = Random(0)
    for problem in islice(task.problems(0), 200):
        for saw, said in task.demonstrate(problem, chance=chance).turns:
            assert words.decode(words.encode(saw)) == saw
            assert words.decode(words.encode(said)) == said
            assert len(words.encode(said)) < task.max_tokens


def test_demonstrations_are_right_by_chance_only():
    """Imitating them must not be worth more than a guess: the rest is for rewards to teach."""
    chance, task = Random(0), demo_task("repair", FakeTaskClient())
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
@pytest.mark.parametrize("number", range(30))
def test_a_suite_tells_the_right_edit_from_all_others(name, number):
    passing = [
        edit
        for edit, (_, f) in EDITS.items()
        if all(f(a, b) == wanted for a, b, wanted in cases(name, number))
    ]
    assert passing == [WANTED[name]]


def test_every_index_knows_something_else():
    for number in range(10, 100):
        assert len({fact(index, number) for index in QUESTIONS}) == len(QUESTIONS)


@pytest.mark.looptime
async def test_suites_of_several_attempts_are_one_run_and_each_has_its_own_verdict():
    client = FakeTaskClient()
    task = RepairTask(client)
    each = [Edited("total", "plus", number) for number in range(3)]
    assert await asyncio.gather(*map(task.passes, each)) == [False, True, True]
    assert client.runs == 1
    await task.passes(each[1])
    assert client.runs == 2


@pytest.mark.looptime
@pytest.mark.parametrize(
    "client",
    [
        FakeTaskClient(Outcome.INFRA_FAILED, None),
        FakeTaskClient(Outcome.FAILED, 3),
        FakeTaskClient(Outcome.FAILED, 1, reported=0),
    ],
)
async def test_a_suite_that_could_not_run_is_no_reward_of_zero(client):
    with pytest.raises(InfraFailed):
        await RepairTask(client).passes(Edited("total", "plus", 0))


@pytest.mark.looptime
async def test_a_tool_that_is_not_in_the_sandbox_is_no_wrong_answer():
    client = FakeTaskClient(Outcome.FAILED, 127, start_error="No such file or directory")
    task = demo_task("calc", client)
    env = task.env(next(task.problems(0)), trajectory="t")
    with pytest.raises(InfraFailed, match="never started: No such file or directory"):
        await env.respond("read 1")


@pytest.mark.looptime
async def test_a_suite_that_could_not_run_says_why():
    with pytest.raises(InfraFailed, match=r"pytest ended with 3: No module named 'pytest'$"):
        await RepairTask(FakeTaskClient(Outcome.FAILED, 3)).passes(Edited("total", "plus", 0))


@pytest.mark.looptime
async def test_the_judge_is_asked_about_several_attempts_at_once():
    client = FakeTaskClient()
    task = JudgedTask(client)
    words = ("fish", "fish", "vehicle")
    assert await asyncio.gather(*(task.likeness(word, "a") for word in words)) == [4, 4, 7]
    assert client.runs == 1


def test_an_attempt_in_a_sandbox_tells_how_long_it_waited_for_cores():
    (problem,) = some("calc", 1)
    assert demo_task("calc", FakeTaskClient()).env(problem, trajectory="t").queued_s == 1.5
