"""The roofline engine on virtual time: it takes exactly what the roofline says."""

import asyncio
from pathlib import Path

import pytest

from artangram.gateway.engines.protocol import (
    EngineRequest,
    Finish,
    FinishReason,
    Sampling,
    TokenChunk,
)
from artangram.gateway.engines.roofline import RooflineEngine
from artangram.gateway.hardware import Roofline, hardware, model_shape

pytestmark = pytest.mark.looptime

REPLICA = Roofline(hardware=hardware("H800"), model=model_shape("qwen3-8b"))
HERE = Path()


def an_engine(replica: Roofline = REPLICA, **fields: object) -> RooflineEngine:
    return RooflineEngine(lambda request: [1] * request.sampling.max_tokens, replica, **fields)


def a_request(name: str, prompt: int, answer: int, session: str = "") -> EngineRequest:
    """Two of different sessions, or of none, have no prefix in common."""
    sampling = Sampling(max_tokens=answer)
    tokens = (ord((session or name)[-1]), *(1,) * (prompt - 1))
    return EngineRequest(id=name, prompt=tokens, sampling=sampling, session=session)


async def took_s(engine: RooflineEngine, request: EngineRequest) -> float:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    items = [item async for item in engine.stream(request)]
    assert isinstance(items[-1], Finish)
    assert items[-1].reason is FinishReason.LENGTH
    tokens = sum(len(item.token_ids) for item in items if isinstance(item, TokenChunk))
    assert tokens == request.sampling.max_tokens
    return loop.time() - began_at


async def test_a_request_alone_is_read_and_then_written_token_by_token():
    took = await took_s(an_engine(), a_request("a", 2048, 101))
    written = sum(REPLICA.decode_s([2048 + n]) for n in range(1, 101))
    assert took == pytest.approx(REPLICA.prefill_s(2048) + written, rel=0.01)


async def test_company_slows_down_as_much_as_the_roofline_says():
    engine = an_engine()
    requests = [a_request(f"r{n}", 64, 1000) for n in range(32)]
    took = await asyncio.gather(*(took_s(engine, request) for request in requests))
    middle = REPLICA.decode_s([64 + 500] * 32)
    assert max(took) == pytest.approx(1000 * middle, rel=0.05)


async def test_a_session_is_read_again_only_where_the_cache_misses():
    for hit_rate, new in ((1.0, 112), (0.0, 8192)):
        engine = an_engine(hit_rate=hit_rate)
        await took_s(engine, a_request("a", 8091, 1, "s"))
        before = engine.stats().prompt_tokens
        await took_s(engine, a_request("b", 8192, 1, "s"))
        assert engine.stats().prompt_tokens - before == new


async def test_siblings_share_their_prompt():
    engine = an_engine()
    await took_s(engine, a_request("a", 1600, 1, "one-s"))
    before = engine.stats().prompt_tokens
    await took_s(engine, a_request("b", 1600, 1, "two-s"))
    assert engine.stats().prompt_tokens - before == 16


async def test_memory_bounds_the_cache_and_the_least_recently_used_is_evicted():
    replica = Roofline(hardware=hardware("H800"), model=model_shape("qwen3-32b"), tp=1)
    engine = an_engine(replica, max_context=10**6)
    size = int(0.4 * replica.capacity)
    for session in ("a", "b", "a", "c"):
        await took_s(engine, a_request(f"fill {session}", size, 1, session))
    found = {}
    for session in ("c", "a", "b"):
        before = engine.stats().prompt_tokens
        await took_s(engine, a_request(f"next {session}", size + 16, 1, session))
        found[session] = engine.stats().prompt_tokens - before < 48
    assert found == {"c": True, "a": True, "b": False}


async def test_new_weights_forget_every_prefix():
    engine = an_engine()
    await took_s(engine, a_request("a", 1600, 1, "s"))
    await engine.load(1, HERE)
    before = engine.stats().prompt_tokens
    await took_s(engine, a_request("b", 1616, 1, "s"))
    assert engine.stats().prompt_tokens - before == 1616


async def test_contexts_that_do_not_fit_wait():
    replica = Roofline(hardware=hardware("H800"), model=model_shape("qwen3-32b"), tp=1)
    engine = an_engine(replica)
    size = int(0.6 * replica.capacity) - 10
    one, other = (asyncio.create_task(took_s(engine, a_request(n, size, 10))) for n in "ab")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert engine.stats().waiting == 2
    assert (await other) > 1.9 * (await one) * 0.95


async def test_new_weights_let_everything_be_read_again():
    engine = an_engine(load_s=2.0)
    running = asyncio.create_task(took_s(engine, a_request("a", 8192, 100, "s")))
    await asyncio.sleep(REPLICA.prefill_s(8192) + 0.3)
    before = engine.stats()
    assert before.running == 1
    await engine.pause()
    await engine.load(1, HERE)
    await engine.resume()
    took = await running
    undisturbed = await took_s(an_engine(), a_request("a", 8192, 100))
    again = 8192 + before.sampled_tokens
    assert engine.stats().prompt_tokens == pytest.approx(8192 + again, abs=64)
    extra = 2.0 + REPLICA.prefill_s(again)
    assert took == pytest.approx(undisturbed + extra, rel=0.05)


async def test_the_busy_time_is_counted_and_idle_time_is_not():
    engine = an_engine()
    took = await took_s(engine, a_request("a", 100, 50))
    await asyncio.sleep(100.0)
    assert await took_s(engine, a_request("b", 100, 50)) == pytest.approx(took)
    assert engine.busy_s == pytest.approx(2 * took)


async def test_tokens_count_when_they_are_written_not_when_they_are_handed_out():
    engine = an_engine()
    running = asyncio.create_task(took_s(engine, a_request("a", 64, 5000)))
    counts = []
    for _ in range(3):
        await asyncio.sleep(10.0)
        counts.append(engine.stats().sampled_tokens)
    assert 0 < counts[0] < counts[1] < counts[2] < 5000
    await running
    assert engine.stats().sampled_tokens == 5000
