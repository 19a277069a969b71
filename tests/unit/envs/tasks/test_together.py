"""Questions that come at about the same time are asked together."""

import asyncio

import pytest

from artangram.core.errors import InfraFailed
from artangram.envs.tasks.together import Together

pytestmark = pytest.mark.looptime


class Oracle:
    """Takes a second for any number of questions, and may fail."""

    def __init__(self, *, fails=False):
        self.fails = fails
        self.asked = []
        self.ended = 0

    async def __call__(self, questions):
        self.asked.append(list(questions))
        await asyncio.sleep(1)
        if self.fails:
            raise InfraFailed("no answer today")
        self.ended += 1
        return [question * 10 for question in questions]


async def test_what_comes_within_a_moment_is_asked_at_once():
    oracle = Oracle()
    together = Together(oracle, gather_s=0.1)
    first = asyncio.create_task(together.answer(1))
    await asyncio.sleep(0.05)
    assert await together.answer(2) == 20
    assert await first == 10
    assert oracle.asked == [[1, 2]]


async def test_what_comes_during_a_run_makes_up_the_next():
    oracle = Oracle()
    together = Together(oracle, gather_s=0.1)
    first = asyncio.create_task(together.answer(1))
    await asyncio.sleep(0.5)
    assert await asyncio.gather(*map(together.answer, (2, 3))) == [20, 30]
    assert oracle.asked == [[1], [2, 3]]
    assert first.done()


async def test_nothing_is_answered_from_memory():
    oracle = Oracle()
    together = Together(oracle, gather_s=0.1)
    assert [await together.answer(1), await together.answer(1)] == [10, 10]
    assert oracle.asked == [[1], [1]]


async def test_one_who_gives_up_takes_nothing_from_the_others():
    oracle = Oracle()
    together = Together(oracle, gather_s=0.1)
    first, second = (asyncio.create_task(together.answer(n)) for n in (1, 2))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == 20
    assert oracle.asked == [[1, 2]]


async def test_a_run_that_nobody_waits_for_is_ended():
    oracle = Oracle()
    together = Together(oracle, gather_s=0.1)
    first = asyncio.create_task(together.answer(1))
    await asyncio.sleep(0.5)
    first.cancel()
    await asyncio.sleep(2)
    assert (oracle.asked, oracle.ended) == ([[1]], 0)
    assert await together.answer(2) == 20


async def test_all_hear_why_a_run_failed_and_the_next_is_tried():
    oracle = Oracle(fails=True)
    together = Together(oracle, gather_s=0.1)
    asked = [asyncio.create_task(together.answer(n)) for n in (1, 2)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in failed] == [InfraFailed] * 2
    oracle.fails = False
    assert await together.answer(3) == 30
