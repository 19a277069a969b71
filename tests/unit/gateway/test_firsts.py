"""A session waits for its first turn until a replica can keep it; later turns never wait."""

import asyncio

from gateway_support import PuppetEngine, settled

from artangram.core.rollout.affinity import affinity_of
from artangram.core.rollout.costs import Rates
from artangram.core.rollout.workingset import FEW_TURNS
from artangram.gateway import FinishReason, Gateway, Sampling

FEW = Sampling(max_tokens=8)
NO_ROOM = Rates(prefill_per_s=1000, decode_per_s=50, cache_tokens=0)
"""A replica takes only what it takes while it is nearly idle."""


def a_gateway(engine: PuppetEngine) -> Gateway:
    gateway = Gateway(affinity=affinity_of("auto"), rates={"gpu": NO_ROOM})
    gateway.add(engine, hardware="gpu")
    return gateway


def asked(gateway: Gateway, name: str) -> asyncio.Task:
    return asyncio.create_task(gateway.open(name).generate([1, 2], FEW))


async def with_a_full_replica() -> tuple[Gateway, PuppetEngine, list[asyncio.Task]]:
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    turns = [asked(gateway, f"s{number}") for number in range(FEW_TURNS)]
    await settled()
    assert len(engine.asked) == FEW_TURNS
    return gateway, engine, turns


async def answered(engine: PuppetEngine, turn: asyncio.Task, *, number: int) -> None:
    engine.say(engine.asked[number], 7)
    engine.end(engine.asked[number])
    assert (await turn).token_ids == (7,)


async def ended(*turns: asyncio.Task) -> None:
    for turn in turns:
        turn.cancel()
    await asyncio.gather(*turns, return_exceptions=True)


async def test_sessions_without_room_begin_in_order_when_a_replica_is_nearly_idle():
    gateway, engine, turns = await with_a_full_replica()
    late = [asked(gateway, name) for name in ("x", "y")]
    await settled()
    assert len(engine.asked) == FEW_TURNS
    assert gateway.counters.paced == 2
    await answered(engine, turns[0], number=0)
    await settled()
    assert [one.session for one in engine.asked[FEW_TURNS:]] == ["x"]
    await answered(engine, turns[1], number=1)
    await settled()
    assert [one.session for one in engine.asked[FEW_TURNS:]] == ["x", "y"]
    await ended(*turns[2:], *late)


async def test_the_second_turn_of_a_session_does_not_wait():
    gateway, engine, turns = await with_a_full_replica()
    await answered(engine, turns[0], number=0)
    late = asked(gateway, "x")
    await settled()
    again = asyncio.create_task(gateway.sessions["s0"].generate([3], FEW))
    await settled()
    assert [one.session for one in engine.asked[FEW_TURNS:]] == ["x", "s0"]
    await ended(*turns[1:], late, again)


async def test_a_waiting_session_can_be_aborted_and_a_cancelled_one_leaves_the_line():
    gateway, engine, turns = await with_a_full_replica()
    late = [asked(gateway, name) for name in ("x", "y", "z")]
    await settled()
    await gateway.abort("x")
    assert (await late[0]).finish is FinishReason.ABORT
    await ended(late[1])
    await answered(engine, turns[0], number=0)
    await settled()
    assert [one.session for one in engine.asked[FEW_TURNS:]] == ["z"]
    await ended(*turns[1:], late[2])


async def test_another_replica_lets_waiting_sessions_begin():
    gateway, _, turns = await with_a_full_replica()
    late = asked(gateway, "x")
    await settled()
    other = PuppetEngine("b")
    gateway.add(other, hardware="gpu")
    await settled()
    assert [one.session for one in other.asked] == ["x"]
    await ended(*turns, late)


async def test_a_declared_affinity_does_not_pace():
    engine = PuppetEngine("a")
    gateway = Gateway(rates={"gpu": NO_ROOM})
    gateway.add(engine, hardware="gpu")
    turns = [asked(gateway, f"s{number}") for number in range(3 * FEW_TURNS)]
    await settled()
    assert len(engine.asked) == 3 * FEW_TURNS
    await ended(*turns)
