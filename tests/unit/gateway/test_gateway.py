"""Turns go to replicas, outlive them, and leave exactly their tokens in the history."""

import asyncio

import pytest
from gateway_support import WORDS, PuppetEngine, settled

from artangram.core.errors import BadInput
from artangram.core.rollout.trajectory import Segment, VersionSpan
from artangram.gateway import (
    ContextFull,
    Declared,
    EngineGone,
    Fallback,
    FinishReason,
    Gateway,
    ReplyTimedOut,
    Sampling,
    SessionClosed,
)
from artangram.gateway.engines.protocol import TokenChunk
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.models.tokenizer import USER, Message

FEW = Sampling(max_tokens=8)


def a_gateway(*engines: PuppetEngine, hardware: str = "default") -> Gateway:
    gateway = Gateway()
    for engine in engines:
        gateway.add(engine, hardware=hardware)
    return gateway


async def test_history_is_what_was_given_and_what_was_sampled():
    engine = PuppetEngine("a", version=3)
    session = a_gateway(engine).open("s")
    turn = asyncio.create_task(session.generate([1, 2], FEW))
    request = await engine.next_request()
    engine.say(request, 7)
    engine.say(request, 8)
    engine.end(request)
    reply = await turn
    assert (reply.token_ids, reply.logprobs, reply.finish) == ((7, 8), (-7.0, -8.0), "stop")
    assert session.segments() == (
        Segment(token_ids=(1, 2)),
        Segment(token_ids=(7, 8), logprobs=(-7.0, -8.0), spans=(VersionSpan(3, 0, 2),)),
    )


async def test_the_next_turn_appends_to_the_very_tokens_before():
    engine = PuppetEngine("a")
    session = a_gateway(engine).open("s")
    await a_turn(session, engine, given=[1], said=[5, 6])
    await a_turn(session, engine, given=[2, 3], said=[7])
    assert engine.asked[-1].prompt == (1, 5, 6, 2, 3)
    assert [s.token_ids for s in session.segments()] == [(1,), (5, 6), (2, 3), (7,)]


async def a_turn(session, engine, *, given, said, reason=FinishReason.STOP):
    turn = asyncio.create_task(session.generate(given, FEW))
    request = await engine.next_request()
    engine.say(request, *said)
    engine.end(request, reason)
    return await turn


async def test_messages_are_rendered_and_the_reply_is_text():
    engine = PuppetEngine("a")
    session = a_gateway(engine).open("s", tokenizer=WORDS)
    said = (*WORDS.encode("the cat"), WORDS.eos_id)
    reply = await a_turn(session, engine, given="hello", said=said)
    assert reply.text == "the cat"
    assert engine.asked[0].prompt == WORDS.render([Message(USER, "hello")]) + WORDS.opening()
    assert WORDS.eos_id in engine.asked[0].sampling.stop_ids


async def test_a_reply_that_was_cut_off_is_ended_before_the_next_message():
    engine = PuppetEngine("a")
    session = a_gateway(engine).open("s", tokenizer=WORDS)
    cut = WORDS.encode("the cat")
    await a_turn(session, engine, given="hello", said=cut, reason=FinishReason.LENGTH)
    await a_turn(session, engine, given="sat", said=[WORDS.eos_id])
    second = session.segments()[2].token_ids
    expected = WORDS.render([Message(USER, "sat")])
    assert second == (WORDS.eos_id, *expected, *WORDS.opening())


async def test_a_turn_outlives_its_replica_with_its_tokens_and_versions():
    first, second = PuppetEngine("a", version=1), PuppetEngine("b", version=2)
    lost = []
    gateway = Gateway(on_lost=lambda engine, error: lost.append(engine.name))
    gateway.add(first)
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate([1, 2], FEW))
    first.say(await first.next_request(), 7, 8)
    await settled()
    first.die()
    await settled()
    gateway.add(second)
    request = await second.next_request()
    assert request.prompt == (1, 2, 7, 8)
    assert request.sampling.max_tokens == FEW.max_tokens - 2
    second.say(request, 9)
    second.end(request)
    reply = await turn
    assert reply.token_ids == (7, 8, 9)
    assert reply.spans == (VersionSpan(1, 0, 2), VersionSpan(2, 2, 3))
    assert session.oldest_version == 1
    assert lost == ["a"]
    assert (gateway.counters.lost, gateway.counters.moves) == (1, 1)


async def test_a_replica_that_dies_after_the_last_token_has_answered():
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    turn = asyncio.create_task(gateway.open("s").generate([1], Sampling(max_tokens=2)))
    engine.say(await engine.next_request(), 7, 8)
    await settled()
    engine.die()
    assert (await turn).finish is FinishReason.LENGTH


class Forgetful(ScriptedEngine):
    """Tells the log-probability of every token but the last."""

    async def stream(self, request, *, cache=None):
        async for item in super().stream(request, cache=cache):
            is_chunk = isinstance(item, TokenChunk)
            yield TokenChunk(item.token_ids, item.logprobs[:-1], item.version) if is_chunk else item


async def test_an_engine_that_leaves_out_a_logprob_is_gone_and_nothing_of_it_is_kept():
    sound = ScriptedEngine(lambda _: [7] * 9, name="sound")
    gateway = Gateway(affinity=Declared(tasks={"t": ("first", "second")}))
    gateway.add(Forgetful(lambda _: [8] * 9, name="forgetful"), hardware="first")
    gateway.add(sound, hardware="second")
    session = gateway.open("s", task="t")
    reply = await session.generate([1], FEW)
    assert reply.token_ids == (7,) * FEW.max_tokens
    assert [len(one.logprobs) for one in session.segments()] == [0, FEW.max_tokens]
    assert [replica.name for replica in gateway.replicas] == ["sound"]


async def test_without_replicas_a_turn_waits_until_its_deadline():
    gateway = Gateway()
    session = gateway.open("s")
    deadline = asyncio.get_running_loop().time() + 0.01
    with pytest.raises(ReplyTimedOut):
        await session.generate([1], FEW, deadline=deadline)
    assert session.segments() == ()
    assert gateway.counters.failed == 1


@pytest.mark.looptime
async def test_time_without_a_replica_is_told_apart():
    gateway, engine = Gateway(), PuppetEngine("a")
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    await asyncio.sleep(3)
    assert session.queued_s == pytest.approx(3, abs=0.1)
    gateway.add(engine)
    request = await engine.next_request()
    await asyncio.sleep(2)
    engine.end(request)
    reply = await turn
    assert (reply.wait_s, reply.run_s) == (pytest.approx(3, abs=0.1), pytest.approx(2, abs=0.1))
    assert session.queued_s == pytest.approx(3, abs=0.1)


async def test_a_turn_that_is_given_up_ends_on_the_engine_and_leaves_no_trace():
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    engine.say(await engine.next_request(), 7)
    await settled()
    turn.cancel()
    await asyncio.wait({turn})
    assert engine.running == []
    assert session.segments() == ()
    assert gateway.replicas[0].turns == 0


async def test_an_aborted_turn_returns_what_it_has():
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    engine.say(await engine.next_request(), 7)
    await settled()
    await gateway.abort("s")
    reply = await turn
    assert (reply.finish, reply.token_ids) == (FinishReason.ABORT, (7,))
    assert session.segments()[-1].token_ids == (7,)


async def test_a_waiting_turn_can_be_aborted():
    session = Gateway().open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    await settled()
    await session.abort()
    assert (await turn).finish is FinishReason.ABORT


async def test_closing_a_session_ends_its_turn():
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    await engine.next_request()
    await session.close()
    with pytest.raises(SessionClosed):
        await turn
    with pytest.raises(SessionClosed):
        await session.generate([1], FEW)
    assert (engine.running, dict(gateway.sessions)) == ([], {})


async def test_a_name_can_be_used_again_while_the_last_turn_under_it_still_ends():
    gateway = Gateway()
    gateway.add(ScriptedEngine(lambda _: [7] * 9, pace=ScriptedPace(token_s=0.001)))
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    await settled()
    await session.close()
    reply = await gateway.open("s").generate([1], FEW)
    assert len(reply.token_ids) == FEW.max_tokens
    with pytest.raises(SessionClosed):
        await turn


async def test_a_session_has_one_turn_at_a_time():
    engine = PuppetEngine("a")
    session = a_gateway(engine).open("s")
    turn = asyncio.create_task(session.generate([1], FEW))
    request = await engine.next_request()
    with pytest.raises(BadInput, match="is in a turn"):
        await session.generate([1], FEW)
    engine.end(request)
    await turn


async def test_evicted_turns_go_on_when_the_replica_is_released():
    engine = PuppetEngine("a", version=1)
    gateway = a_gateway(engine)
    turn = asyncio.create_task(gateway.open("s").generate([1], FEW))
    engine.say(await engine.next_request(), 7)
    await settled()
    gateway.hold("a")
    await gateway.evict("a")
    await gateway.drained("a")
    assert engine.running == []
    engine.version = 2
    gateway.release("a")
    request = await engine.next_request()
    assert (request.prompt, request.num_sampled) == ((1, 7), 1)  # Penalties count what was sampled.
    engine.say(request, 8)
    engine.end(request)
    assert (await turn).spans == (VersionSpan(1, 0, 1), VersionSpan(2, 1, 2))


async def test_turns_of_a_removed_replica_go_elsewhere():
    first, second = PuppetEngine("a"), PuppetEngine("b")
    gateway = a_gateway(first)
    turn = asyncio.create_task(gateway.open("s").generate([1], FEW))
    await first.next_request()
    gateway.add(second)
    assert await gateway.remove("a") is first
    request = await second.next_request()
    second.end(request)
    await turn
    assert [replica.name for replica in gateway.replicas] == ["b"]


async def test_a_full_context_is_refused_and_a_nearly_full_one_clips_the_answer():
    engine = PuppetEngine("a", max_context=4)
    gateway = a_gateway(engine)
    with pytest.raises(ContextFull, match="has 4 tokens"):
        await gateway.open("s").generate([1, 2, 3, 4], FEW)
    turn = asyncio.create_task(gateway.open("t").generate([1, 2, 3], FEW))
    request = await engine.next_request()
    assert request.sampling.max_tokens == 1
    engine.end(request, FinishReason.LENGTH)
    await turn


async def test_replicas_that_keep_ending_a_turn_without_a_token_are_no_accident():
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    turn = asyncio.create_task(gateway.open("s").generate([1], FEW))
    while not turn.done():
        await settled()
        for request_id in engine.running:
            await engine.abort(request_id)
    with pytest.raises(EngineGone, match="without a token"):
        await turn


async def test_a_fallback_is_counted_and_logged(caplog):
    engine = PuppetEngine("a")
    gateway = Gateway(affinity=Declared(tasks={"math": ("bandwidth", "*")}))
    gateway.add(engine, hardware="compute")
    turn = asyncio.create_task(gateway.open("s", task="math").generate([1], FEW))
    engine.end(await engine.next_request())
    await turn
    assert gateway.counters.fallbacks == {Fallback("math", "bandwidth", "compute"): 1}
    assert "no replica of its class" in caplog.text


async def test_turns_spread_by_outstanding_work_and_sessions_stay_where_their_prefix_is():
    busy, idle = PuppetEngine("a"), PuppetEngine("b")
    gateway = a_gateway(busy, idle)
    first = asyncio.create_task(gateway.open("s").generate([0] * 100, FEW))
    request = await busy.next_request()
    second = gateway.open("t")
    await a_turn(second, idle, given=[0] * 100, said=[1])
    busy.end(request)
    await first
    await a_turn(second, idle, given=[0], said=[1])
    assert gateway.counters.by_replica == {"a": 1, "b": 2}


async def test_what_was_expected_of_caches_and_what_they_held_is_counted_by_task():
    engine = PuppetEngine("a")
    gateway = a_gateway(engine)
    session = gateway.open("s", task="lake")
    for given, found in ((100, 0), (11, 96), (8, None)):
        turn = asyncio.create_task(session.generate([0] * given, FEW))
        request = await engine.next_request()
        engine.say(request, 1)
        engine.end(request, found=found)
        await turn
    tally = gateway.counters.tasks["lake"]
    assert (tally.sessions, tally.turns, tally.opening) == (1, 3, 100)
    assert (tally.prompt, tally.sampled) == (100 + 112 + 121, 3)
    assert (tally.asked, tally.expected, tally.found) == (100 + 112, 101.0, 96)
    assert tally.hit_rate == pytest.approx(96 / 212)
    assert gateway.router.speeds.hit_rate("default") == pytest.approx(96 / 101)


@pytest.mark.parametrize("stops", [(), ("sat",)])
async def test_routing_learns_from_turns_however_they_end(stops):
    engine, learned = PuppetEngine("a"), []
    gateway = a_gateway(engine)
    gateway.router.learn = learned.append
    session = gateway.open("s", task="t", tokenizer=WORDS)
    items = session.stream_on(session.line, "the cat", FEW, stops=stops)
    turn = asyncio.create_task(all_of(items))
    request = await engine.next_request()
    engine.say(request, *WORDS.encode("the dog sat"))
    if not stops:
        engine.end(request)
    await turn
    (seen,) = learned
    assert (seen.task, seen.work.decode) == ("t", len(WORDS.encode("the dog sat")))


async def all_of(items):
    return [item async for item in items]
