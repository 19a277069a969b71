"""No window at the API holds more than its limit, whatever happens on the way there."""

import asyncio
import random
from collections.abc import Callable

import pytest

from artangram.apis.gate import Gate, Gates

pytestmark = pytest.mark.looptime


def a_gate(limit: int | None = 3, *, window_s: float = 10.0, spread_s: float = 1.0) -> Gate:
    return Gate(limit, window_s, spread_s=spread_s, now=asyncio.get_running_loop().time)


async def passed(gate: Gate, *, answer_s: float | None = 0.0) -> float:
    """When a request left; it was answered `answer_s` later, or not yet."""
    passage = await gate.passage()
    passage.sent()
    left_at = gate.now()
    if answer_s is not None:
        asyncio.get_running_loop().call_later(answer_s, passage.answered)
    return left_at


async def test_the_limit_leaves_at_once_and_the_next_a_window_after_the_first_answer() -> None:
    gate = a_gate()
    times = await asyncio.gather(*(passed(gate, answer_s=0.5) for _ in range(4)))
    assert times == pytest.approx([0, 0, 0, 10.5])


async def test_an_api_that_computes_for_long_is_not_slow_to_be_reached() -> None:
    gate = a_gate(2)
    times = await asyncio.gather(*(passed(gate, answer_s=answer_s) for answer_s in (0.3, 8, 0, 0)))
    assert times == pytest.approx([0, 0, 10.3, 11])


async def test_without_an_answer_a_request_may_have_been_late_by_the_spread() -> None:
    gate = a_gate(1)
    assert [await passed(gate, answer_s=None), await passed(gate)] == pytest.approx([0, 11])


async def test_nothing_is_known_of_a_request_that_has_not_left() -> None:
    gate = a_gate(1)
    passage = await gate.passage()
    following = asyncio.create_task(passed(gate))
    await asyncio.sleep(100)
    assert not following.done()
    passage.sent()
    assert await following == pytest.approx(111)


async def test_a_call_worth_two_takes_two_places() -> None:
    gate = a_gate(2)
    (await gate.passage(2)).answered()
    assert await passed(gate) == pytest.approx(10)


async def test_without_a_limit_all_pass() -> None:
    gate = a_gate(None)
    assert await asyncio.gather(*(passed(gate) for _ in range(100))) == [0] * 100


async def test_who_gives_up_waiting_holds_nobody_up() -> None:
    gate = a_gate(2)
    await passed(gate)
    waiting = asyncio.create_task(gate.passage(2))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await passed(gate) == pytest.approx(10)
    assert await passed(gate) == pytest.approx(12)


async def test_who_is_cancelled_in_his_turn_holds_nobody_up() -> None:
    gate = a_gate(1)
    await passed(gate)
    waiting = asyncio.create_task(gate.passage())
    asyncio.get_running_loop().call_later(10, waiting.cancel)
    following = asyncio.create_task(passed(gate))
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await following <= 21.01


async def test_it_says_whether_there_is_room() -> None:
    gate = a_gate(1)
    assert gate.has_room()
    await passed(gate)
    await asyncio.sleep(0.1)
    assert not gate.has_room()
    await asyncio.sleep(10)
    assert gate.has_room()


@pytest.mark.parametrize("seed", range(5))
async def test_no_window_of_the_api_is_ever_overfull(seed: int) -> None:
    rng = random.Random(seed)
    limit, window_s, spread_s = rng.randint(1, 8), 10.0, 2.0
    gate = a_gate(limit, window_s=window_s, spread_s=spread_s)
    arrivals: list[float] = []

    async def request(delay: Callable[[], float]) -> None:
        passage = await gate.passage()
        await asyncio.sleep(delay())  # A connection is made.
        passage.sent()
        await asyncio.sleep(rng.uniform(0, spread_s))
        arrivals.append(gate.now())
        await asyncio.sleep(delay())
        passage.answered()

    await asyncio.gather(*(request(lambda: rng.choice([0, 0.1, 5])) for _ in range(60)))
    arrivals.sort()
    for first, beyond in zip(arrivals, arrivals[limit:], strict=False):
        assert beyond - first >= window_s - 1e-9
    best_s = (60 / limit - 1) * window_s
    assert arrivals[-1] - arrivals[0] < 2 * best_s


async def test_another_limit_counts_from_now_on() -> None:
    gate = a_gate(1)
    await passed(gate)
    waiting = [asyncio.create_task(passed(gate)) for _ in range(3)]
    await asyncio.sleep(1)
    gate.reconfigure(3, 10.0, spread_s=1.0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, True, False]
    gate.reconfigure(None, 10.0, spread_s=1.0)
    assert await waiting[2] == pytest.approx(1)
    gate.reconfigure(1, 2.0, spread_s=1.0)
    assert [await passed(gate), await passed(gate)] == pytest.approx([1, 3])


async def test_every_window_of_an_api_holds() -> None:
    """Three in ten seconds, and four in a minute."""
    gates = Gates([(3, 10.0, 1.0), (4, 60.0, 1.0)], now=asyncio.get_running_loop().time)

    async def left_at() -> float:
        passage = await gates.passage()
        passage.sent()
        at = asyncio.get_running_loop().time()
        passage.answered()
        return at

    times = await asyncio.gather(*(left_at() for _ in range(6)))
    assert sorted(times) == pytest.approx([0, 0, 0, 10, 60, 60])


async def test_without_windows_all_pass_and_others_may_come_and_go() -> None:
    gates = Gates([], now=asyncio.get_running_loop().time)
    assert (gates.first, gates.has_room()) == (None, True)
    (await gates.passage()).sent()
    gates.reconfigure([(1, 10.0, 0.0), (1, 20.0, 0.0)])
    (await gates.passage()).sent()
    assert not gates.has_room()
    waiting = asyncio.create_task(gates.passage())
    await asyncio.sleep(1)
    gates.reconfigure([(5, 10.0, 0.0)])
    await waiting
    assert "Gate: 2 of 5" in repr(gates)


async def test_who_gives_up_at_the_second_window_holds_up_no_other() -> None:
    gates = Gates([(1, 10.0, 0.0), (2, 60.0, 0.0)], now=asyncio.get_running_loop().time)
    (await gates.passage()).sent()
    waiting = asyncio.create_task(gates.passage())
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    await gates.passage()
    assert asyncio.get_running_loop().time() == pytest.approx(60)
