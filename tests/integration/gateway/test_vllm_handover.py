"""The engine for vLLM hands over what was read, between servers that do as vLLM does.

`tests/vllm` runs the same suite between real ones.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.gateway import Gateway, Sampling, splits_of
from artangram.gateway.engines import vllm
from artangram.gateway.engines.protocol import Engine
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.engines.vllm import VllmEngine
from artangram.gateway.engines.vllmdouble import application
from artangram.gateway.http import serving
from conformance.test_handover import *  # noqa: F403 - the suite, with our engine
from conformance.test_handover import PROMPT, a_request, answered, script
from integration.gateway.test_vllm_double import write_tensor

del test_a_reader_that_is_gone_hands_nothing_over  # noqa: F821 - it makes engines of its own

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACE = ScriptedPace(token_s=0.001, prompt_token_s=0.0001)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directories = [tmp_path_factory.mktemp("weights") for _ in range(2)]
    for directory in directories:
        write_tensor(directory / "model.safetensors", "a", length=4)
    return directories


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> dict[str, ScriptedEngine]:
    """What samples in the servers."""
    return {name: ScriptedEngine(script, name=name, pace=PACE, max_context=512) for name in "ab"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    behind: dict[str, ScriptedEngine], weights: list[Path]
) -> AsyncIterator[list[Engine]]:
    async with AsyncExitStack() as stack:
        engines = []
        for name, scripted in behind.items():
            url = await stack.enter_async_context(serving(application(scripted)))
            engine = await VllmEngine.connect(
                url, name=name, directory=weights[0], cache_kind="connector"
            )
            stack.push_async_callback(engine.aclose)
            engines.append(engine)
        yield engines


async def test_the_server_itself_is_told_where_to_find_it(
    stages: list[Engine], behind: dict[str, ScriptedEngine]
):
    reader, writer = stages
    before = behind[writer.name].stats().taken_tokens
    async with reader.handing(a_request()) as cache:
        await answered(writer, a_request(), cache)
    assert behind[writer.name].stats().taken_tokens - before == len(PROMPT) - 1


@pytest.mark.parametrize("changes", [True, False], ids=["new weights", "the same"])
async def test_what_waits_for_a_cache_while_a_server_stands_still_is_begun_anew(
    stages: list[Engine], weights: list[Path], behind: dict[str, ScriptedEngine], changes: bool
):
    """vLLM would take it, whichever weights have read it and however long ago."""
    reader, writer = stages
    version = writer.stats().version + changes
    gateway = Gateway(split=splits_of({"default": {"prefill": "compute", "decode": "bandwidth"}}))
    gateway.add(reader, hardware="compute")
    gateway.add(writer, hardware="bandwidth")
    session = gateway.open("s")
    await writer.pause()
    turn = asyncio.create_task(session.generate(PROMPT, Sampling(max_tokens=4)))
    while not behind[writer.name].stats().waiting:  # noqa: ASYNC110 - a server tells nobody
        await asyncio.sleep(0.01)
    taken = writer.stats().taken_tokens
    if changes:
        await writer.load(version, weights[1])
    await writer.resume()
    reply = await turn
    assert [span.version for span in reply.spans] == [version]
    assert gateway.counters.moves == 1
    # Once from what was read anew, if the weights let it.
    assert writer.stats().taken_tokens - taken == (0 if changes else len(PROMPT) - 1)
    await session.close()


async def test_what_was_read_too_long_ago_is_read_again(
    stages: list[Engine], monkeypatch: pytest.MonkeyPatch, behind: dict[str, ScriptedEngine]
):
    """vLLM has given the place to others, and would answer from what is there."""
    reader, writer = stages
    alone = await answered(writer, a_request("alone"))
    before = behind[writer.name].stats().taken_tokens
    monkeypatch.setattr(vllm, "KEPT_S", 0.0)
    async with reader.handing(a_request()) as cache:
        assert await answered(writer, a_request(), cache) == alone
    assert behind[writer.name].stats().taken_tokens == before


async def test_what_a_server_cannot_fetch_it_reads_itself(
    stages: list[Engine], monkeypatch: pytest.MonkeyPatch, behind: dict[str, ScriptedEngine]
):
    reader, writer = stages
    server = behind[writer.name]
    alone = await answered(writer, a_request("alone"))
    stream = server.stream

    def failing(request, *, cache=None):
        if cache is not None:
            raise BadInput("cache", "could not be fetched", "read it")
        return stream(request)

    monkeypatch.setattr(server, "stream", failing)
    before = writer.stats().taken_tokens
    async with reader.handing(a_request()) as cache:
        assert await answered(writer, a_request(), cache) == alone
    assert writer.stats().taken_tokens == before


async def test_pausing_waits_until_what_was_read_has_been_fetched(
    stages: list[Engine], monkeypatch: pytest.MonkeyPatch, behind: dict[str, ScriptedEngine]
):
    reader, _ = stages
    calls = []
    server = behind[reader.name]
    pause = server.pause

    async def refusing_once() -> None:
        calls.append("pause")
        if len(calls) == 1:
            raise RuntimeError("waiting for remote KV transfer")
        await pause()

    monkeypatch.setattr(server, "pause", refusing_once)
    await reader.pause()
    assert (len(calls), reader.stats().is_paused, server.stats().is_paused) == (2, True, True)
    await reader.resume()
