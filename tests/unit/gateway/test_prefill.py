"""Turns in two halves: one replica reads, another writes, and either may fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gateway_support import PuppetEngine

from artangram.core.rollout.split import AutoSplit
from artangram.gateway import (
    Fallback,
    FinishReason,
    Gateway,
    Rates,
    Sampling,
    StallLimits,
    splits_of,
)
from artangram.gateway.engines.protocol import Cache, EngineRequest
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace

pytestmark = pytest.mark.looptime

PACE = ScriptedPace(token_s=1.0, prompt_token_s=1.0)
PROMPT = tuple(range(10))
MANY = Sampling(max_tokens=5)
ANSWER = (100, 101, 102, 103, 104)
SPLIT = {"default": {"prefill": "compute", "decode": "bandwidth"}}
HERE = Path(__file__).parent


def script(request: EngineRequest) -> tuple[int, ...]:
    """Goes on from what was sampled before."""
    return ANSWER[sum(token >= 100 for token in request.prompt) :]


class Engines:
    """A gateway with a reader and a writer."""

    def __init__(self, split: str | dict = SPLIT, **options) -> None:
        self.gateway = Gateway(split=splits_of(split), **options)
        self.reader = self.join("reader", "compute")
        self.writer = self.join("writer", "bandwidth")

    def join(self, name: str, hardware: str, pace: ScriptedPace = PACE) -> ScriptedEngine:
        engine = ScriptedEngine(script, name=name, pace=pace)
        self.gateway.add(engine, hardware=hardware)
        return engine

    def turn(self, prompt: tuple[int, ...] = PROMPT, name: str = "s") -> asyncio.Task:
        session = self.gateway.open(name)
        return asyncio.create_task(session.generate(prompt, MANY))

    @property
    def split(self) -> tuple[int, int]:
        counters = self.gateway.counters
        return counters.splits, counters.unsplit

    def is_idle(self) -> bool:
        replicas = self.gateway.replicas
        left = [(one.turns, one.load.prefill, one.load.decode) for one in replicas]
        under_way = [one.engine.stats().running + one.engine.stats().waiting for one in replicas]
        return not any(any(some) for some in left) and not any(under_way)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_one_reads_and_the_other_writes():
    client = Engines()
    reply = await client.turn()
    assert (reply.token_ids, reply.replica) == (ANSWER, "writer")
    assert now() == pytest.approx(9 + 1 + 5)
    assert client.reader.stats().prompt_tokens == len(PROMPT) - 1
    assert client.writer.stats().taken_tokens == len(PROMPT) - 1
    assert (client.split, client.gateway.counters.split_bytes) == ((1, 0), len(PROMPT) - 1)
    assert (client.gateway.counters.moves, client.gateway.counters.fallbacks) == (0, {})
    assert client.is_idle()


class Lender(ScriptedEngine):
    """Knows how many of its caches are still held."""

    lent = 0

    @asynccontextmanager
    async def handing(self, request: EngineRequest) -> AsyncIterator[Cache | None]:
        async with super().handing(request) as cache:
            self.lent += 1
            try:
                yield cache
            finally:
                self.lent -= 1


async def test_a_cache_is_held_until_the_first_token():
    client = Engines()
    await client.gateway.remove("reader")
    lender = Lender(script, name="lender", pace=PACE)
    client.gateway.add(lender, hardware="compute")
    turn = client.turn()
    await asyncio.sleep(9.5)
    assert lender.lent == 1
    await asyncio.sleep(2)
    assert (lender.lent, turn.done()) == (0, False)
    await turn
    client.writer.pace = ScriptedPace(token_s=1.0, prompt_token_s=5.0)
    turn = client.turn(name="given up")
    await asyncio.sleep(10)
    assert lender.lent == 1
    turn.cancel()
    await asyncio.wait({turn})
    assert lender.lent == 0


async def test_while_one_prompt_is_read_another_turn_is_written():
    client = Engines()
    first, second = client.turn(name="a"), client.turn(name="b")
    await asyncio.sleep(8)
    assert [one.turns for one in client.gateway.replicas] == [2, 0]
    assert (await first).token_ids == (await second).token_ids == ANSWER
    assert client.split == (2, 0)


async def test_a_reader_that_dies_costs_only_time():
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(4.5)
    client.reader.crash()
    reply = await turn
    assert (reply.token_ids, reply.replica) == (ANSWER, "writer")
    assert client.writer.stats().prompt_tokens == len(PROMPT)
    assert (client.split, client.gateway.counters.lost) == ((0, 1), 1)
    assert client.is_idle()


async def test_a_writer_that_dies_has_its_turn_read_and_written_anew():
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(10 + 2.5)
    client.writer.crash()
    other = client.join("other", "bandwidth")
    reply = await turn
    assert (reply.token_ids, reply.replica) == (ANSWER, "other")
    assert other.stats().taken_tokens == len(PROMPT) + 2 - 1
    assert (client.split, client.gateway.counters.moves) == ((2, 0), 1)
    assert client.is_idle()


async def test_without_a_writer_the_reader_goes_on_and_it_is_counted():
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(4.5)
    client.gateway.hold("writer")
    reply = await turn
    assert (reply.token_ids, reply.replica) == (ANSWER, "reader")
    assert client.split == (0, 1)
    assert client.gateway.counters.fallbacks == {Fallback("", "bandwidth", "compute"): 1}


async def test_without_both_classes_a_turn_is_served_as_a_whole():
    client = Engines()
    await client.gateway.remove("reader")
    reply = await client.turn()
    assert (reply.token_ids, reply.replica, client.split) == (ANSWER, "writer", (0, 1))


async def test_engines_that_hand_nothing_over_serve_turns_as_a_whole():
    gateway = Gateway(split=splits_of(SPLIT))
    gateway.add(ScriptedEngine(script, name="reader"), hardware="compute")
    puppet = PuppetEngine("puppet")
    gateway.add(puppet, hardware="bandwidth")
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate((1,) * 10, MANY))
    reply = await turn
    assert (reply.token_ids, gateway.counters.unsplit) == (ANSWER, 1)


async def test_new_weights_between_the_halves_read_again_and_stamp_right():
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(4.5)
    await client.writer.load(7, HERE)
    reply = await turn
    assert (reply.token_ids, [span.version for span in reply.spans]) == (ANSWER, [7])
    assert (client.writer.stats().taken_tokens, client.split) == (0, (0, 1))


async def test_whoever_has_the_version_of_the_cache_is_preferred():
    client = Engines()
    await client.writer.load(1, HERE)
    same = client.join("same", "bandwidth", pace=ScriptedPace(token_s=1.1, prompt_token_s=1.0))
    reply = await client.turn()
    assert (reply.replica, same.stats().taken_tokens) == ("same", len(PROMPT) - 1)


@pytest.mark.parametrize("half", ["reading", "writing"])
async def test_an_aborted_turn_ends_in_either_half(half: str):
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(4.5 if half == "reading" else 11.5)
    await client.gateway.abort("s")
    reply = await turn
    assert reply.finish is FinishReason.ABORT
    assert len(reply.token_ids) == (0 if half == "reading" else 1)
    assert client.is_idle()


@pytest.mark.parametrize("at", [4.5, 11.5])
async def test_a_turn_that_is_given_up_ends_in_either_half(at: float):
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(at)
    turn.cancel()
    await asyncio.wait({turn})
    assert client.is_idle()
    assert client.gateway.counters.failed == 1


async def test_a_reader_that_is_cleared_has_its_turn_read_elsewhere():
    client = Engines()
    turn = client.turn()
    await asyncio.sleep(4.5)
    client.gateway.hold("reader")
    await client.gateway.evict("reader")
    await client.gateway.drained("reader")
    assert (await turn).token_ids == ANSWER
    assert client.split == (0, 1)


async def test_a_reader_that_stands_still_is_given_up():
    client = Engines(stalls=StallLimits(least_s=20.0))
    client.reader.hang()
    reply = await client.turn()
    assert (reply.token_ids, client.gateway.counters.stalled) == (ANSWER, 1)
    assert [one.name for one in client.gateway.replicas] == ["writer"]


async def test_auto_splits_when_it_has_seen_that_it_gains_and_until_a_move_takes_too_long():
    rates = {
        "compute": Rates(prefill_per_s=1.0, decode_per_s=0.1),
        "bandwidth": Rates(prefill_per_s=0.1, decode_per_s=1.0),
    }
    client = Engines("auto", rates=rates)
    looks = AutoSplit().look_every
    for n in range(looks - 1):
        await client.turn(name=f"unknown {n}")
    assert client.split == (0, 0)
    assert (await client.turn(name="known")).replica == "writer"
    assert client.split == (1, 0)
    client.reader.pace = ScriptedPace(token_s=1.0, prompt_token_s=1.0, move_token_s=10.0)
    for n in range(looks - 1):
        await client.turn(name=f"slow {n}")
    assert client.split == (looks, 0)  # It does not look again before.
    await client.turn(name="whole")
    assert client.split == (looks, 0)


async def test_what_is_read_elsewhere_belongs_to_the_task_and_to_the_readers_class():
    client = Engines()
    await client.turn()
    router = client.gateway.router
    assert router.habits.typical("").prefill == len(PROMPT) + 1
    assert router.speeds.of("compute").prefill_per_s == pytest.approx(10 / 9)
