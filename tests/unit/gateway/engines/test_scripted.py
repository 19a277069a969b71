"""A scripted engine keeps time and has the faults it is told to have."""

import asyncio
from pathlib import Path

import pytest

from artangram.gateway.engines.protocol import (
    BadWeights,
    EngineGone,
    EngineRequest,
    Finish,
    FinishReason,
    Sampling,
    TokenChunk,
)
from artangram.gateway.engines.scripted import AT_ONCE, Script, ScriptedEngine, ScriptedPace

pytestmark = pytest.mark.looptime

SLOW = ScriptedPace(token_s=2.0, prompt_token_s=0.5, load_s=3.0)


def an_engine(
    pace: ScriptedPace = AT_ONCE, *, script: Script = lambda request: [1, 2, 3]
) -> ScriptedEngine:
    return ScriptedEngine(script, pace=pace)


def a_request(name: str = "r") -> EngineRequest:
    return EngineRequest(id=name, prompt=(9, 9), sampling=Sampling(max_tokens=8))


async def answered(engine: ScriptedEngine, name: str = "r") -> list[TokenChunk | Finish]:
    return [item async for item in engine.stream(a_request(name))]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_without_a_pace_the_answer_comes_at_once_and_whole():
    assert await answered(an_engine()) == [
        TokenChunk((1, 2, 3), (0.0, 0.0, 0.0), 0),
        Finish(FinishReason.STOP),
    ]
    assert now() == 0


async def test_time_passes_per_token_of_prompt_and_answer():
    began_at = now()
    await answered(an_engine(SLOW))
    assert now() - began_at == 2 * 0.5 + 3 * 2.0


async def test_a_pause_holds_the_token_that_was_due():
    engine = an_engine(SLOW)
    running = asyncio.create_task(answered(engine))
    await asyncio.sleep(4.0)
    await engine.pause()
    await asyncio.sleep(96.0)
    await engine.resume()
    await running
    assert now() == 100.0 + 2.0


async def test_a_crash_ends_everything():
    engine = an_engine(SLOW)
    running = asyncio.create_task(answered(engine))
    await asyncio.sleep(1.5)
    engine.crash()
    with pytest.raises(EngineGone, match="it crashed"):
        await running
    with pytest.raises(EngineGone):
        await engine.pause()
    assert now() == 1.5


async def test_a_hanging_engine_answers_nobody_until_it_goes_on():
    engine = an_engine(SLOW)
    running = asyncio.create_task(answered(engine))
    await asyncio.sleep(4.0)
    engine.hang()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(50):
            await engine.abort("r")
    assert not running.done()
    engine.go_on()
    await engine.pause()
    await engine.resume()
    assert len(await running) == 4


async def test_a_version_can_be_bad(tmp_path: Path):
    engine = an_engine(SLOW)
    engine.refuse(4)
    with pytest.raises(BadWeights):
        await engine.load(4, tmp_path)
    await engine.load(5, tmp_path)
    assert engine.stats().version == 5
    assert now() == 2 * 3.0


async def test_a_script_sees_the_request():
    engine = an_engine(script=lambda request: request.prompt * 2)
    assert (await answered(engine))[0] == TokenChunk((9,) * 4, (0.0,) * 4, 0)


async def test_a_silent_script_only_ends():
    assert await answered(an_engine(script=lambda request: [])) == [Finish(FinishReason.STOP)]
