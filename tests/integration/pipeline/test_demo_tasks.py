"""The demo's tasks with all they use: real sandboxes, tests, judge and API."""

import asyncio
from itertools import islice

import pytest

pytest.importorskip("torch", reason="the judge needs torch")

import artangram
from artangram.apis.spec import ApiSpec
from artangram.cli.demo.session import searching
from artangram.core.errors import BadInput
from artangram.envs.tasks import demo_task
from artangram.envs.tasks.calc import POINT, TOOLS, worked_out
from artangram.envs.tasks.judged import KINDS
from artangram.envs.tasks.repair import WANTED
from artangram.envs.tasks.search import QUESTIONS, fact
from artangram.services.shipped.similarity import similarity


async def played(task, problem, replies, name):
    """The score of these replies, and all that was seen."""
    env = task.env(problem, trajectory=name)
    try:
        seen = [(await env.reset()).text]
        for reply in replies:
            observation = await env.respond(reply)
            seen.append(observation.text)
            if observation.done:
                break
        return await env.score(), seen
    finally:
        await env.aclose()


async def test_tools_run_in_a_sandbox_and_agree_with_the_answer():
    async with artangram.local() as client:
        task = demo_task("calc", client)
        problems = list(islice(task.problems(0), 12))
        assert {problem.data["verb"] for problem in problems} == set(TOOLS)
        for number, problem in enumerate(problems):
            verb, question = problem.data["verb"], problem.data["question"]
            numbers = question.split()[-1]
            answer = worked_out(verb, numbers)
            replies = [
                f"read {problem.data['file']}",
                f"{POINT[verb]} {verb} {numbers}",
                f"answer {answer}",
            ]
            score, seen = await played(task, problem, replies, f"calc-{number}")
            assert seen[1:3] == [question, answer]
            assert score == 1.0
        score, seen = await played(
            task, problems[0], ["read 9", "gcd 7", "answer 99999"], "calc-wrong"
        )
        assert seen[1:3] == ["error", "error"]
        assert score == 0.0


async def test_a_real_suite_tells_the_right_edit_from_a_wrong_one():
    async with artangram.local() as client:
        task = demo_task("repair", client)
        problem = next(task.problems(0))
        right = WANTED[problem.data["function"]]
        wrong = next(edit for edit in WANTED.values() if edit != right)
        name = problem.data["function"]
        replies = {"right": f"{name} {right}", "wrong": f"{name} {wrong}", "mumble": "mumble"}
        ended = await asyncio.gather(
            *(played(task, problem, [reply], key) for key, reply in replies.items())
        )
        assert [score for score, _ in ended] == [1.0, 0.0, 0.0]


async def test_the_api_answers_within_its_limit():
    async with searching(latency_s=0.001) as url:
        api = ApiSpec(base_url=url, limit=100, window_s=1.0)
        async with artangram.local(apis={"search": api}) as client:
            task = demo_task("search", client)
            problem = next(task.problems(0))
            index, number = problem.data["index"], problem.data["number"]
            found = str(fact(index, number))
            score, seen = await played(
                task, problem, [f"who {index} {number}", f"answer {found}"], "a"
            )
            assert (score, seen[1]) == (1.0, found)
            other = next(name for name in QUESTIONS if name != index)
            score, seen = await played(
                task, problem, [f"who {other} {number}", f"answer {number}"], "b"
            )
            assert score == 0.0
            assert seen[1] != found
            _, seen = await played(task, problem, ["who people 12345"], "c")
            assert seen[1] == "error"


async def test_the_judge_finds_the_fitting_word():
    try:
        judge = similarity("judge")
    except BadInput as error:
        pytest.skip(str(error))
    async with artangram.local(devices=1, device_memory_mb=1024, services=(judge,)) as client:
        task = demo_task("judged", client)
        for number, problem in enumerate(islice(task.problems(0), 5)):
            first = problem.data["text"].split()[0]
            right = next(kind for kind, words in KINDS.items() if first in words)
            wrong = next(kind for kind in KINDS if kind != right)
            assert (await played(task, problem, [f"{first} {right}"], f"r{number}"))[0] == 1.0
            assert (await played(task, problem, [f"{first} {wrong}"], f"w{number}"))[0] == 0.0
