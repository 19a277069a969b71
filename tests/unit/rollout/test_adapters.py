"""Plain functions and Gymnasium as tasks."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from itertools import count, islice

import pytest

from artangram.core.errors import BadInput
from artangram.envs.functional import FunctionTask
from artangram.envs.gymnasium import GymnasiumTask
from artangram.envs.protocol import Detachable, Problem


def sums(seed: int) -> Iterator[Mapping[str, int]]:
    return ({"a": seed, "b": number} for number in count())


def is_right(data: Mapping[str, int], replies: tuple[str, ...]) -> float:
    return float(replies[-1] == str(data["a"] + data["b"]))


def adding(**changed: object) -> FunctionTask:
    settings = {"problems": sums, "ask": lambda data: f"{data['a']}+{data['b']}", "score": is_right}
    return FunctionTask("add", **settings | changed)


def first(task: FunctionTask | GymnasiumTask, seed: int = 3) -> Problem:
    return next(task.problems(seed))


async def test_functions_make_a_task():
    task = adding()
    problems = list(islice(task.problems(3), 2))
    assert [problem.id for problem in problems] == ["add-3-0", "add-3-1"]
    env = task.env(problems[1], trajectory="t")
    assert (await env.reset()).text == "3+1"
    assert (await env.respond("4")).done
    assert await env.score() == 1.0
    await env.aclose()


async def test_the_reward_of_functions_outlives_their_environment():
    env = adding().env(first(adding()), trajectory="t")
    assert isinstance(env, Detachable)
    await env.respond("wrong")
    score = await env.detach()
    await env.aclose()
    assert await score() == 0.0


async def test_functions_can_talk_back_and_take_their_time():
    async def answer(data: Mapping[str, int], replies: tuple[str, ...]) -> str | None:
        await asyncio.sleep(0)
        return None if len(replies) == 2 else "are you sure?"

    async def score(data: Mapping[str, int], replies: tuple[str, ...]) -> float:
        return float(len(replies))

    task = adding(answer=answer, score=score, max_turns=4)
    env = task.env(first(task), trajectory="t")
    assert (await env.respond("7")).text == "are you sure?"
    assert (await env.respond("3")).done
    assert await env.score() == 2.0


def test_turns_without_answers_are_refused():
    with pytest.raises(BadInput, match="give `answer`"):
        adding(max_turns=3)


MOVES = ("left", "down", "right", "up")


def a_lake() -> GymnasiumTask:
    gymnasium = pytest.importorskip("gymnasium")
    return GymnasiumTask(
        "lake",
        make=lambda: gymnasium.make("FrozenLake-v1", is_slippery=False),
        describe=lambda observation, info: str(observation),
        action_of=lambda reply: MOVES.index(reply),
    )


async def test_a_gymnasium_episode_is_played_to_its_reward():
    task = a_lake()
    env = task.env(first(task), trajectory="t")
    assert (await env.reset()).text == "0"
    said = [await env.respond(move) for move in ("down", "down", "right", "right", "down", "right")]
    assert [one.text for one in said] == ["4", "8", "9", "10", "14", "15"]
    assert [one.done for one in said] == [False] * 5 + [True]
    assert await env.score() == 1.0
    await env.aclose()


async def test_a_reply_that_is_no_action_costs_a_turn_and_says_so():
    task = a_lake()
    env = task.env(first(task), trajectory="t")
    await env.reset()
    answer = await env.respond("swim")
    assert "no action" in answer.text
    assert not answer.done
    assert (await env.respond("right")).text == "1"
    await env.aclose()


async def test_calls_of_one_environment_never_overlap_even_when_given_up():
    begun, release, running = threading.Event(), threading.Event(), []

    class Blocking:
        def reset(self, *, seed: int | None = None) -> tuple[int, dict]:
            running.append("reset")
            begun.set()
            release.wait(10)
            running.append("done")
            return 0, {}

        def close(self) -> None:
            running.append("close")

    task = GymnasiumTask("x", make=Blocking, describe=lambda o, i: "", action_of=str)
    env = task.env(first(task), trajectory="t")
    resetting = asyncio.create_task(env.reset())
    assert await asyncio.to_thread(begun.wait, 10)
    resetting.cancel()
    closing = asyncio.create_task(env.aclose())
    await asyncio.sleep(0)
    assert running == ["reset"]
    release.set()
    await closing
    assert running == ["reset", "done", "close"]
    assert resetting.cancelled()


def test_other_seeds_are_other_episodes():
    task = a_lake()
    assert first(task, seed=1).data != first(task, seed=2).data
    assert first(task, seed=1) == first(task, seed=1)
