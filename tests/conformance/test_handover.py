"""What every engine promises that reads for others, or goes on with what they have read."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from busy_machine import PATIENCE_S

from artangram.gateway.engines.protocol import (
    Cache,
    Engine,
    EngineGone,
    EngineRequest,
    Finish,
    FinishReason,
    Handover,
    Sampling,
    TokenChunk,
)
from artangram.gateway.engines.roofline import RooflineEngine
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.gateway.hardware import ModelShape, Roofline, hardware

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = tuple(range(1, 21))
OTHER_PROMPT = (9, *PROMPT[1:])


def script(request: EngineRequest) -> list[int]:
    return [request.prompt[0] + n for n in range(400)]


async def scripted(first: Path) -> list[Engine]:
    pace = ScriptedPace(token_s=0.001, prompt_token_s=0.0001)
    return [ScriptedEngine(script, name=name, pace=pace, max_context=512) for name in "ab"]


async def roofline(first: Path) -> list[Engine]:
    small = ModelShape(name="small", params=1e6, active=1e6, layers=2, heads=2, kv_heads=1)
    replica = Roofline(hardware=hardware("H20"), model=small, overhead_s=0.001)
    return [RooflineEngine(script, replica, name=name, max_context=512) for name in "ab"]


async def torch(first: Path) -> list[Engine]:
    from artangram.gateway.engines.torchengine import TorchEngine

    settings = TorchEngineSettings(directory=str(first))
    process = await TorchEngineProcess.start(settings, name="process")
    return [await TorchEngine.start(settings, name="thread"), process]


Maker = Callable[[Path], Awaitable[list[Engine]]]
MAKERS: list[Maker] = [scripted, roofline, torch]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two versions that every engine can load."""
    from models_support import a_model

    from artangram.models.directory import save_model

    folder = tmp_path_factory.mktemp("models")
    for seed in range(2):
        save_model(a_model(seed=seed, max_context=512), folder / str(seed))
    return [folder / str(seed) for seed in range(2)]


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=MAKERS, ids=lambda maker: maker.__name__
)
async def pair(request: pytest.FixtureRequest, weights: list[Path]) -> AsyncIterator[list[Engine]]:
    engines: list[Engine] = await request.param(weights[0])
    yield engines
    for engine in engines:
        await engine.aclose()


@pytest_asyncio.fixture(loop_scope="module", params=["there", "back"])
async def stages(
    request: pytest.FixtureRequest, pair: list[Engine], weights: list[Path]
) -> AsyncIterator[list[Engine]]:
    """A reader and a writer with the same weights; nothing is left running on them."""
    before = max(engine.stats().version for engine in pair)
    for engine in pair:
        await loaded(engine, before + 1, weights[0])
    async with asyncio.timeout(PATIENCE_S):
        yield pair if request.param == "there" else pair[::-1]
    for engine in pair:
        await engine.resume()
        assert engine.stats().running + engine.stats().waiting == 0


async def loaded(engine: Engine, version: int, path: Path) -> None:
    await engine.pause()
    await engine.load(version, path)
    await engine.resume()


def a_request(name: str = "r", prompt: Sequence[int] = PROMPT, **how: float) -> EngineRequest:
    sampling = Sampling(max_tokens=8, **({"temperature": 0} | how))
    return EngineRequest(
        id=name, prompt=tuple(prompt), sampling=sampling, session=f"session of {name}"
    )


Answer = tuple[list[int], list[float], set[int]]


async def answered(engine: Handover, request: EngineRequest, cache: Cache | None = None) -> Answer:
    """Tokens, logprobs and versions."""
    items = [item async for item in engine.stream(request, cache=cache)]
    finish = items.pop()
    assert isinstance(finish, Finish)
    assert finish.reason is FinishReason.LENGTH
    chunks = [item for item in items if isinstance(item, TokenChunk)]
    tokens = [token for chunk in chunks for token in chunk.token_ids]
    logprobs = [one for chunk in chunks for one in chunk.logprobs]
    return tokens, logprobs, {chunk.version for chunk in chunks}


def same(one: Answer, other: Answer) -> bool:
    return one[0] == other[0] and one[1] == pytest.approx(other[1], abs=1e-4) and one[2] == other[2]


async def test_they_are_of_one_kind(stages: list[Engine]):
    assert all(isinstance(engine, Handover) for engine in stages)
    kinds = {engine.cache_kind for engine in stages}
    assert len(kinds) == 1
    assert kinds != {""}


@pytest.mark.parametrize("how", [{}, {"temperature": 1.0, "seed": 7}], ids=["likeliest", "seeded"])
async def test_whoever_goes_on_says_what_it_would_have_said(stages: list[Engine], how: dict):
    reader, writer = stages
    alone = await answered(writer, a_request("alone", **how))
    read, sampled, before = reader.stats(), reader.stats().sampled_tokens, writer.stats()
    async with reader.handing(a_request("halved", **how)) as cache:
        assert cache.tokens == len(PROMPT) - 1
        assert cache.version == read.version
        halved = await answered(writer, a_request("halved", **how), cache)
    assert same(halved, alone)
    assert reader.stats().sampled_tokens == sampled
    assert reader.stats().prompt_tokens > read.prompt_tokens
    assert writer.stats().taken_tokens - before.taken_tokens == len(PROMPT) - 1
    assert writer.stats().prompt_tokens - before.prompt_tokens <= 1


async def test_what_other_weights_have_read_is_read_again(
    stages: list[Engine], weights: list[Path]
):
    reader, writer = stages
    version = writer.stats().version + 1
    async with reader.handing(a_request()) as cache:
        await loaded(writer, version, weights[1])
        taken = writer.stats().taken_tokens
        late = await answered(writer, a_request(), cache)
    assert writer.stats().taken_tokens == taken
    assert same(late, await answered(writer, a_request("alone")))
    assert late[2] == {version}


async def test_a_cache_outlives_the_weights_of_its_reader(
    stages: list[Engine], weights: list[Path]
):
    reader, writer = stages
    alone = await answered(writer, a_request("alone"))
    async with reader.handing(a_request()) as cache:
        await loaded(reader, reader.stats().version + 1, weights[1])
        assert same(await answered(writer, a_request(), cache), alone)


async def test_a_prompt_that_is_read_across_a_change_of_weights_has_the_later_version(
    stages: list[Engine], weights: list[Path]
):
    reader, writer = stages
    version = reader.stats().version + 1
    await reader.pause()
    async with AsyncExitStack() as held:
        reading = asyncio.create_task(held.enter_async_context(reader.handing(a_request())))
        await asyncio.sleep(0.02)
        await reader.load(version, weights[1])
        await reader.resume()
        cache = await reading
        assert cache.version == version
        await loaded(writer, version, weights[1])
        halved = await answered(writer, a_request(), cache)
    assert same(halved, await answered(writer, a_request("alone")))


async def test_a_cache_that_is_gone_or_of_another_prompt_changes_no_token(stages: list[Engine]):
    reader, writer = stages
    alone = await answered(writer, a_request("alone"))
    other = await answered(writer, a_request("other alone", OTHER_PROMPT))
    async with reader.handing(a_request()) as cache:
        assert same(await answered(writer, a_request("other", OTHER_PROMPT), cache), other)
        shorter = await answered(writer, a_request("shorter", PROMPT[:-4]), cache)
    assert same(shorter, await answered(writer, a_request("shorter alone", PROMPT[:-4])))
    assert same(await answered(writer, a_request(), cache), alone)


async def test_the_next_turn_of_a_session_is_read_from_where_it_was(stages: list[Engine]):
    reader, writer = stages
    async with reader.handing(a_request()) as cache:
        said = (await answered(writer, a_request(), cache))[0]
    more = (*PROMPT, *said, 8, 9)
    alone = await answered(writer, a_request("alone", more))
    async with reader.handing(a_request(prompt=more)) as cache:
        assert cache.tokens == len(more) - 1
        assert same(await answered(writer, a_request(prompt=more), cache), alone)


async def test_a_reading_that_is_aborted_ends_with_nothing(stages: list[Engine]):
    reader, _ = stages
    await reader.pause()
    async with AsyncExitStack() as held:
        reading = asyncio.create_task(held.enter_async_context(reader.handing(a_request())))
        await asyncio.sleep(0.02)
        await reader.abort("r")
        assert await reading is None


async def test_a_reading_that_nobody_waits_for_ends(stages: list[Engine]):
    reader, _ = stages
    await reader.pause()
    reading = asyncio.create_task(reader.handing(a_request()).__aenter__())
    await asyncio.sleep(0.02)
    reading.cancel()
    await asyncio.wait({reading})
    await reader.resume()
    # An engine tells nobody when it has noticed; a test has to look.
    while reader.stats().running + reader.stats().waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("make", MAKERS, ids=lambda maker: maker.__name__)
async def test_a_reader_that_is_gone_hands_nothing_over(make: Maker, weights: list[Path]):
    reader, writer = await make(weights[0])
    alone = await answered(writer, a_request("alone"))
    async with AsyncExitStack() as held:
        cache = await held.enter_async_context(reader.handing(a_request()))
        await reader.pause()
        under_way = asyncio.create_task(
            held.enter_async_context(reader.handing(a_request("under way")))
        )
        await asyncio.sleep(0.02)
        reader.crash("it was declared so")
        for late in (under_way, held.enter_async_context(reader.handing(a_request("late")))):
            with pytest.raises(EngineGone):
                await late
        assert same(await answered(writer, a_request(), cache), alone)
    for engine in (reader, writer):
        await engine.aclose()
