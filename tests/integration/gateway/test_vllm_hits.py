"""What vLLM servers say of their prefix caches reaches the gateway's books, by task."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import EngineRequest, Sampling
from artangram.gateway.engines.roofline import RooflineEngine
from artangram.gateway.engines.vllm import VllmEngine
from artangram.gateway.engines.vllmdouble import application
from artangram.gateway.engines.vllmwire import PromptDetails, Usage, Usages, body_of
from artangram.gateway.hardware import Roofline, hardware, model_shape
from artangram.gateway.http import serving

FEW = Sampling(max_tokens=4)


def a_server(name: str) -> RooflineEngine:
    """It has a prefix cache, and takes as long as an H800."""
    replica = Roofline(hardware=hardware("H800"), model=model_shape("qwen3-8b"))
    return RooflineEngine(lambda _: [7] * 4, replica, name=name)


@asynccontextmanager
async def a_gateway(*names: str) -> AsyncIterator[Gateway]:
    gateway = Gateway()
    async with AsyncExitStack() as stack:
        for name in names:
            url = await stack.enter_async_context(serving(application(a_server(name))))
            engine = await VllmEngine.connect(url, name=name)
            stack.push_async_callback(engine.aclose)
            gateway.add(engine)
        yield gateway


async def converse(gateway: Gateway, number: int, *, turns: int, given: int) -> None:
    session = gateway.open(f"s{number}", task="lake")
    for turn in range(turns):
        await session.generate([1000 * number + turn] * given, FEW)
    await session.close()


async def test_predicted_hits_are_near_those_that_servers_report():
    async with a_gateway("a", "b") as gateway:
        await asyncio.gather(
            *(converse(gateway, number, turns=6, given=160) for number in range(4))
        )
        tally = gateway.counters.tasks["lake"]
    # Prompts of 160 tokens, then 164 more each; whole blocks of what was there before are found.
    asked = 4 * sum(160 + 164 * turn for turn in range(6))
    assert tally.asked >= asked - 4 * 160  # Before its first find a server does not say anything.
    assert 0.6 < tally.hit_rate < 0.95
    assert tally.expected / tally.asked == pytest.approx(tally.hit_rate, abs=0.1)


async def test_a_server_that_never_says_what_it_found_is_not_counted():
    async with a_gateway("a") as gateway:
        await converse(gateway, 1, turns=1, given=40)
        assert gateway.counters.tasks["lake"].asked == 0


def test_nothing_found_is_left_out_by_servers_that_say_what_they_find():
    usages, silent = Usages(), Usage(prompt_tokens=9)
    assert usages.found(silent) is None
    assert usages.found(Usage(prompt_tokens=9, prompt_tokens_details=PromptDetails(8))) == 8
    assert usages.found(silent) == 0


def test_requests_ask_for_it():
    body = body_of(EngineRequest(id="r", prompt=(1, 2), sampling=FEW))
    assert b'"stream_options":{"include_usage":true}' in body
