"""The engine for vLLM keeps every promise of an engine, before a server that does as vLLM does.

`tests/vllm` runs the same suite before the real one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from busy_machine import PATIENCE_S
from models_support import a_model
from starlette.responses import Response

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import BadWeights, EngineGone, EngineRequest, Sampling
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.engines.torchengine import TorchEngine
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.gateway.engines.vllm import VllmEngine
from artangram.gateway.engines.vllmdouble import application
from artangram.gateway.http import serving
from artangram.models.directory import save_model
from conformance.test_engine import *  # noqa: F403 - the suite, with our engine
from conformance.test_engine import LONG, Answer, a_request
from conformance.test_engine import (
    test_every_way_to_sample_is_obeyed_or_refused_by_its_name as obeyed_or_refused,
)

del test_an_engine_that_was_closed_or_declared_so_is_gone  # noqa: F821 - it makes engines of its own; see below

del test_every_way_to_sample_is_obeyed_or_refused_by_its_name  # noqa: F821 - needs an engine that samples; see below

pytestmark = pytest.mark.asyncio(loop_scope="module")


def a_script(request: EngineRequest) -> list[int]:
    return [request.prompt[0]] * LONG


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("weights")
    write_tensor(directory / "model.safetensors", "a", length=4)
    return directory


def write_tensor(path: Path, name: str, *, length: int) -> None:
    header = f'{{"{name}": {{"dtype": "F32", "shape": [{length}], "data_offsets": [0, 16]}}}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(16))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> ScriptedEngine:
    return a_scripted()


def a_scripted(script=a_script) -> ScriptedEngine:
    return ScriptedEngine(script, pace=ScriptedPace(token_s=0.002), max_context=LONG + 56)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(behind: ScriptedEngine) -> AsyncIterator[str]:
    async with serving(application(behind)) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(url: str, weights: Path) -> AsyncIterator[VllmEngine]:
    engine = await VllmEngine.connect(url, directory=weights)
    yield engine
    await engine.aclose()


async def test_every_way_to_sample_reaches_the_server_and_alternatives_come_back(tmp_path: Path):
    save_model(a_model(max_context=512), tmp_path)
    behind = await TorchEngine.start(TorchEngineSettings(directory=str(tmp_path)))
    async with serving(application(behind)) as url:
        engine = await VllmEngine.connect(url)
        await obeyed_or_refused(engine)
        await engine.aclose()
    await behind.aclose()


async def test_a_closed_engine_is_gone_and_its_server_is_not(url: str, weights: Path):
    engine = await VllmEngine.connect(url, name="other", version=3)
    under_way = Answer(engine, a_request(max_tokens=LONG))
    await under_way.begun.wait()
    await engine.aclose()
    with pytest.raises(EngineGone):
        await under_way.end()
    verbs = [engine.pause(), engine.resume(), engine.abort("r"), engine.load(1, weights)]
    for verb in [*verbs, Answer(engine, a_request("late")).end()]:
        with pytest.raises(EngineGone):
            await verb
    await (await VllmEngine.connect(url)).aclose()


async def test_hanging_up_ends_the_request_at_the_server(engine, behind):
    before = behind.stats().sampled_tokens
    async with aclosing(engine.stream(a_request(max_tokens=LONG))) as items:
        await anext(items)
    async with asyncio.timeout(PATIENCE_S):
        while behind.stats().running:  # noqa: ASYNC110 - the server notices when it does
            await asyncio.sleep(0.01)
    assert behind.stats().sampled_tokens - before < LONG


async def test_other_tensors_are_refused_before_the_server_sees_them(
    engine: VllmEngine, behind: ScriptedEngine, tmp_path: Path
):
    before = behind.stats().version
    write_tensor(tmp_path / "model.safetensors", "b", length=4)
    with pytest.raises(BadWeights, match="other tensors"):
        await engine.load(9, tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BadWeights, match="cut short"):
        await engine.load(9, tmp_path)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(BadWeights, match="no header"):
        await engine.load(9, tmp_path)
    assert behind.stats().version == before


@asynccontextmanager
async def an_engine(scripted: ScriptedEngine, weights: Path) -> AsyncIterator[VllmEngine]:
    async with serving(application(scripted)) as url:
        engine = await VllmEngine.connect(url, version=4, directory=weights)
        yield engine
        await engine.aclose()


async def test_weights_that_the_server_cannot_load_are_replaced_by_those_before(weights: Path):
    scripted = a_scripted()
    scripted.refuse(1)
    async with an_engine(scripted, weights) as engine:
        with pytest.raises(BadWeights):
            await engine.load(5, weights)
        assert scripted.stats().version == 2
        answer = Answer(engine, a_request())
        await answer.end()
        assert set(answer.versions) == {4}


async def test_an_engine_with_neither_weights_is_gone(weights: Path):
    scripted = a_scripted()
    scripted.refuse(1)
    scripted.refuse(2)
    async with an_engine(scripted, weights) as engine:
        with pytest.raises(BadWeights):
            await engine.load(5, weights)
        with pytest.raises(EngineGone, match="nor the weights before"):
            await Answer(engine, a_request()).end()


async def test_weights_changed_by_somebody_else_are_noticed(weights: Path):
    async with an_engine(a_scripted(), weights) as engine:
        answer = Answer(engine, a_request(max_tokens=LONG))
        await answer.begun.wait()
        await engine._verb("/collective_rpc", json={"kwargs": {"weights_path": str(weights)}})
        await engine._verb("/update_weight_version", json={"new_version": "9"})
        with pytest.raises(EngineGone, match="another client"):
            await answer.end()


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"finish_reason": "eaten"}, "eaten"),
        ({"token_ids": "three"}, "Expected `array"),
    ],
)
async def test_a_server_that_answers_what_no_vllm_would_is_gone(weights: Path, choice, problem):
    """Nobody waits for the end of such an answer."""
    event = b"data: " + msgspec.json.encode({"choices": [{"index": 0, **choice}]}) + b"\n\n"
    app = application(a_scripted())
    app.router.routes[:] = [one for one in app.routes if "generate" not in one.path]
    app.add_route(
        "/inference/v1/generate",
        lambda _: Response(event, media_type="text/event-stream"),
        methods=["POST"],
    )
    async with serving(app) as url:
        engine = await VllmEngine.connect(url, directory=weights)
        with pytest.raises(EngineGone, match=problem):
            await asyncio.wait_for(Answer(engine, a_request()).end(), PATIENCE_S)
        await engine.aclose()


async def test_tokens_that_the_model_does_not_know_do_not_reach_the_server(tmp_path: Path):
    write_tensor(tmp_path / "model.safetensors", "a", length=4)
    (tmp_path / "config.json").write_text('{"vocab_size": 9, "architectures": ["Tiny"]}')
    async with an_engine(a_scripted(), tmp_path) as engine:
        with pytest.raises(BadInput, match="use 0 to 8"):
            await Answer(engine, a_request(prompt=(1, 9))).end()


async def test_no_server_no_engine():
    with pytest.raises(EngineGone, match="does not answer"):
        await VllmEngine.connect("http://127.0.0.1:9")


async def test_what_was_asked_reaches_the_server(weights: Path):
    asked: list[EngineRequest] = []

    def script(request: EngineRequest) -> list[int]:
        asked.append(request)
        return [4, 5]

    sampling = Sampling(max_tokens=7, temperature=0.5, top_p=0.9, stop_ids=(5,), seed=11)
    async with an_engine(a_scripted(script), weights) as engine:
        await Answer(engine, a_request("all", sampling=sampling)).end()
    assert asked[0].sampling == sampling
