"""Replicas that stand still are found, given up, and their turns go on elsewhere."""

import asyncio
import logging

import pytest

from artangram.core.errors import BadInput
from artangram.core.rollout.costs import Rates
from artangram.gateway import Gateway, Sampling, StallLimits
from artangram.gateway.engines.protocol import EngineRequest
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace

pytestmark = pytest.mark.looptime

LIMITS = StallLimits(least_s=20.0)
PACE = ScriptedPace(token_s=1.0)
NEVER = ScriptedPace(token_s=1e9)
ANSWER = tuple(range(100, 110))


def script(request: EngineRequest) -> tuple[int, ...]:
    """Goes on from what was sampled before."""
    return ANSWER[sum(token >= 100 for token in request.prompt) :]


def a_cluster(*names: str, **options) -> tuple[Gateway, list[ScriptedEngine]]:
    gateway = Gateway(stalls=LIMITS, **options)
    engines = [ScriptedEngine(script, name=name, pace=PACE) for name in names]
    for engine in engines:
        gateway.add(engine)
    return gateway, engines


async def answered(gateway: Gateway, name: str, prompt: tuple[int, ...] = (1, 2)):
    session = gateway.open(name)
    async with asyncio.timeout(100 * LIMITS.least_s):  # A turn without a replica has no end.
        reply = await session.generate(prompt, Sampling(max_tokens=len(ANSWER)))
    await session.close()
    return reply


def stops_giving_tokens(engine: ScriptedEngine) -> None:
    """It answers every verb, and samples nothing more."""
    engine.pace = NEVER


@pytest.mark.parametrize("fault", [ScriptedEngine.hang, stops_giving_tokens])
async def test_turns_of_a_replica_that_stands_still_go_on_elsewhere(fault, caplog):
    lost = []
    gateway, (bad, _) = a_cluster("bad", "good", on_lost=lambda engine, error: lost.append(engine))
    turns = [asyncio.create_task(answered(gateway, f"s{n}")) for n in range(4)]
    await asyncio.sleep(3.5)
    fault(bad)
    with caplog.at_level(logging.WARNING):
        replies = await asyncio.gather(*turns)
    assert [reply.token_ids for reply in replies] == [ANSWER] * 4
    assert asyncio.get_running_loop().time() < 3.5 + 2 * LIMITS.least_s
    assert lost == [bad]
    assert [replica.name for replica in gateway.replicas] == ["good"]
    assert (gateway.counters.stalled, gateway.counters.lost, gateway.counters.moves) == (1, 1, 2)
    assert "gave no token for" in caplog.text


async def test_a_replica_that_is_slow_or_idle_is_left_alone():
    gateway, (engine,) = a_cluster("slow")
    engine.pace = ScriptedPace(token_s=0.9 * LIMITS.least_s)
    await asyncio.sleep(10 * LIMITS.least_s)
    assert (await answered(gateway, "s")).token_ids == ANSWER
    await asyncio.sleep(10 * LIMITS.least_s)
    assert gateway.counters.stalled == 0


async def test_a_paused_replica_may_stand_still():
    gateway, (engine,) = a_cluster("paused")
    turn = asyncio.create_task(answered(gateway, "s"))
    await asyncio.sleep(3.5)
    await engine.pause()
    await asyncio.sleep(10 * LIMITS.least_s)
    await engine.resume()
    assert (await turn).token_ids == ANSWER
    assert gateway.counters.stalled == 0


async def test_a_reader_who_stands_still_is_no_fault_of_the_replica():
    gateway, _ = a_cluster("patient")
    taken = []
    stream = gateway.open("s").stream((1, 2), Sampling(max_tokens=len(ANSWER)))
    async with asyncio.timeout(100 * LIMITS.least_s):
        async for item in stream:
            taken.append(item)
            await asyncio.sleep(3 * LIMITS.least_s if len(taken) == 2 else 0)
    assert taken[-1].token_ids == ANSWER
    assert gateway.counters.stalled == 0


async def test_a_long_prompt_is_given_the_time_that_its_class_takes():
    rates = {"default": Rates(prefill_per_s=0.1, decode_per_s=1.0)}
    gateway, (engine,) = a_cluster("reader", rates=rates)
    engine.pace = ScriptedPace(token_s=1.0, prompt_token_s=10.0)
    assert (await answered(gateway, "s", (1,) * 10)).token_ids == ANSWER
    assert gateway.counters.stalled == 0


async def test_a_turn_that_stalls_every_replica_gets_more_time_on_each():
    gateway, engines = a_cluster("a", "b", "c")
    for engine in engines:
        engine.pace = ScriptedPace(token_s=1.0, prompt_token_s=3.0 * LIMITS.least_s)
    assert (await answered(gateway, "s", (1,))).token_ids == ANSWER
    assert (gateway.counters.stalled, len(gateway.replicas)) == (2, 1)


async def test_a_replica_that_hangs_when_it_is_removed_holds_no_turn():
    gateway, (bad,) = a_cluster("bad")
    turn = asyncio.create_task(answered(gateway, "s"))
    await asyncio.sleep(3.5)
    bad.hang()
    removing = asyncio.create_task(gateway.remove("bad"))
    gateway.add(ScriptedEngine(script, name="good", pace=PACE))
    assert (await turn).token_ids == ANSWER
    await removing


async def test_what_is_given_up_is_gone_at_once_though_it_hangs():
    lost = []
    gateway, (bad,) = a_cluster("bad", on_lost=lambda engine, error: lost.append(str(error)))
    turn = asyncio.create_task(answered(gateway, "s"))
    await asyncio.sleep(3.5)
    bad.hang()
    gateway.give_up("bad", "somebody knows better")
    gateway.give_up("bad", "and says it twice")
    gateway.add(ScriptedEngine(script, name="good", pace=PACE))
    assert (await turn).token_ids == ANSWER
    assert asyncio.get_running_loop().time() < LIMITS.least_s
    assert lost == ["bad: somebody knows better"]


def test_limits_of_nothing_are_refused():
    with pytest.raises(BadInput, match="say more than 0"):
        StallLimits(least_s=0.0)
