"""What every engine promises, whatever samples its tokens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from busy_machine import PATIENCE_S

from artangram.core.errors import BadInput
from artangram.core.rollout.weights import Update, Versions
from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import (
    BadWeights,
    Engine,
    EngineGone,
    EngineRequest,
    Finish,
    FinishReason,
    Sampling,
    TokenChunk,
)
from artangram.gateway.engines.roofline import RooflineEngine
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.gateway.hardware import ModelShape, Roofline, hardware
from artangram.weights import roll

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = (5, 6, 7)
LONG = 400
"""More tokens than an engine samples while a test says a word."""
TRIES = 1
"""To be in time for such an answer; more where one may come all at once."""


async def scripted(directory: Path) -> Engine:
    def script(request: EngineRequest) -> list[int]:
        return [request.prompt[0]] * LONG

    return ScriptedEngine(script, pace=ScriptedPace(token_s=0.001), max_context=512)


async def roofline(directory: Path) -> Engine:
    small = ModelShape(name="small", params=1e6, active=1e6, layers=2, heads=2, kv_heads=1)
    replica = Roofline(hardware=hardware("H20"), model=small, overhead_s=0.001)

    def script(request: EngineRequest) -> list[int]:
        return [request.prompt[0]] * LONG

    return RooflineEngine(script, replica, max_context=512, chunk_tokens=4)


async def torch_thread(directory: Path) -> Engine:
    from artangram.gateway.engines.torchengine import TorchEngine

    return await TorchEngine.start(TorchEngineSettings(directory=str(directory)))


async def torch_process(directory: Path) -> Engine:
    return await TorchEngineProcess.start(TorchEngineSettings(directory=str(directory)))


Maker = Callable[[Path], Awaitable[Engine]]
MAKERS: list[Maker] = [scripted, roofline, torch_thread, torch_process]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that every engine can load."""
    from models_support import a_model

    from artangram.models.directory import save_model

    directory = tmp_path_factory.mktemp("model")
    save_model(a_model(max_context=512), directory)
    return directory


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=MAKERS, ids=lambda maker: maker.__name__
)
async def shared(request: pytest.FixtureRequest, weights: Path) -> AsyncIterator[Engine]:
    engine: Engine = await request.param(weights)
    yield engine
    await engine.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def engine(shared: Engine) -> AsyncIterator[Engine]:
    """Starting one takes seconds: tests share it and leave nothing running on it."""
    yield shared
    await shared.resume()
    assert shared.stats().running + shared.stats().waiting == 0


def a_request(name: str = "r", *, max_tokens: int = 4, **fields: object) -> EngineRequest:
    sampling = Sampling(max_tokens=max_tokens)
    return EngineRequest(**({"id": name, "prompt": PROMPT, "sampling": sampling} | fields))


class Answer:
    """What came of a request, gathered in the background."""

    def __init__(self, engine: Engine, request: EngineRequest) -> None:
        self.chunks: list[TokenChunk] = []
        self.ends: list[Finish] = []
        self.begun = asyncio.Event()
        self.running = asyncio.create_task(self._gather(engine, request))

    @property
    def tokens(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.token_ids]

    @property
    def versions(self) -> list[int]:
        return [chunk.version for chunk in self.chunks for _ in chunk.token_ids]

    async def end(self) -> FinishReason:
        async with asyncio.timeout(PATIENCE_S):
            await self.running
        (finish,) = self.ends
        return finish.reason

    async def _gather(self, engine: Engine, request: EngineRequest) -> None:
        try:
            async with aclosing(engine.stream(request)) as items:
                async for item in items:
                    assert not self.ends, "something came after the end"
                    if isinstance(item, Finish):
                        self.ends.append(item)
                    else:
                        assert len(item.logprobs) == len(item.token_ids)
                        self.chunks.append(item)
                        self.begun.set()
        finally:
            self.begun.set()


async def test_an_answer_has_as_many_tokens_as_asked_for_and_one_end(engine: Engine):
    answer = Answer(engine, a_request(max_tokens=4))
    assert await answer.end() is FinishReason.LENGTH
    assert len(answer.tokens) == 4
    assert all(len(c.token_ids) == len(c.logprobs) for c in answer.chunks)
    assert set(answer.versions) == {engine.stats().version}


async def test_a_stop_token_ends_the_answer_and_is_its_last(engine: Engine):
    free = Answer(engine, a_request("free", sampling=Sampling(max_tokens=4, temperature=0)))
    await free.end()
    stop = free.tokens[0]
    sampling = Sampling(max_tokens=4, temperature=0, stop_ids=(stop,))
    answer = Answer(engine, a_request("stopped", sampling=sampling))
    assert await answer.end() is FinishReason.STOP
    assert answer.tokens == [stop]


async def test_an_answer_ends_where_the_context_ends(engine: Engine):
    prompt = PROMPT[:1] * (engine.max_context - 3)
    answer = Answer(engine, a_request(prompt=prompt, max_tokens=100))
    assert await answer.end() is FinishReason.LENGTH
    assert len(answer.tokens) == 3


async def test_many_requests_run_side_by_side(engine: Engine):
    answers = [Answer(engine, a_request(f"r{n}", max_tokens=3 + n % 3)) for n in range(80)]
    for n, answer in enumerate(answers):
        await answer.end()
        assert len(answer.tokens) == 3 + n % 3


async def test_an_aborted_request_ends_and_the_others_go_on(engine: Engine):
    gone, stays = (Answer(engine, a_request(name, max_tokens=LONG)) for name in ("gone", "stays"))
    await gone.begun.wait()
    await engine.abort("gone")
    assert await gone.end() is FinishReason.ABORT
    assert await stays.end() is FinishReason.LENGTH
    assert len(gone.tokens) < LONG == len(stays.tokens)


async def test_a_request_that_ended_can_be_aborted_in_vain(engine: Engine):
    answer = Answer(engine, a_request())
    await answer.end()
    await engine.abort("r")
    await engine.abort("never heard of")


async def test_closing_a_stream_aborts_its_request(engine: Engine):
    before = engine.stats().sampled_tokens
    async with aclosing(engine.stream(a_request(max_tokens=LONG))) as items:
        await anext(items)
    # An engine tells nobody when it has noticed; a test has to look.
    while engine.stats().running + engine.stats().waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert engine.stats().sampled_tokens - before < LONG


async def test_nothing_is_sampled_while_paused(engine: Engine):
    before = Answer(engine, a_request("before", max_tokens=LONG))
    await before.begun.wait()
    await engine.pause()
    during = Answer(engine, a_request("during"))
    await asyncio.sleep(0.05)
    counted, received = engine.stats().sampled_tokens, len(before.tokens)
    assert engine.stats().is_paused
    await asyncio.sleep(0.05)
    assert (engine.stats().sampled_tokens, len(before.tokens)) == (counted, received)
    assert not during.tokens
    await engine.resume()
    assert not engine.stats().is_paused
    assert [await before.end(), await during.end()] == [FinishReason.LENGTH] * 2
    assert len(before.tokens) == LONG


async def test_a_paused_request_can_be_aborted(engine: Engine):
    await engine.pause()
    answer = Answer(engine, a_request())
    await asyncio.sleep(0.01)
    await engine.abort("r")
    assert await answer.end() is FinishReason.ABORT


async def test_each_token_has_the_version_that_sampled_it(engine: Engine, weights: Path):
    old = engine.stats().version
    answer = Answer(engine, a_request(max_tokens=LONG))
    await answer.begun.wait()
    await engine.pause()
    await asyncio.sleep(0.05)
    under_old = len(answer.tokens)
    await engine.load(old + 7, weights)
    assert engine.stats().version == old + 7
    await engine.resume()
    assert await answer.end() is FinishReason.LENGTH
    assert answer.versions == [old] * under_old + [old + 7] * (LONG - under_old)
    assert 0 < under_old < LONG


@pytest.mark.parametrize("mode", list(Update))
async def test_a_turn_survives_new_weights_in_every_mode(
    engine: Engine, weights: Path, mode: Update
):
    for _ in range(TRIES):
        if await survived(engine, weights, mode):
            return
    pytest.fail("every answer was whole before its weights could change")


async def survived(engine: Engine, weights: Path, mode: Update) -> bool:
    """Did the turn go on under new weights, as it should? Else it ended before them."""
    old = engine.stats().version
    gateway, versions = Gateway(), Versions(old)
    gateway.add(engine)
    versions.announce(old + 1)

    async def near(replica: str, version: int) -> Path:
        return weights

    session = gateway.open("s")
    turn = asyncio.create_task(session.generate(PROMPT, Sampling(max_tokens=LONG)))
    async with asyncio.timeout(PATIENCE_S):
        while session.oldest_version is None:  # noqa: ASYNC110 - a turn tells nobody
            await asyncio.sleep(0.001)
        rolled = await roll(gateway, old + 1, pull=near, versions=versions, mode=mode)
        reply = await turn
        after = await session.generate(PROMPT, Sampling(max_tokens=4))
    found = [span.version for span in reply.spans]
    assert len(reply.token_ids) == LONG
    assert [span.version for span in after.spans] == [old + 1]
    assert rolled.failed == ()
    await session.close()
    if mode is Update.DRAIN:
        assert (found, gateway.counters.moves) == ([old], 0)
        return True
    if found == [old]:
        return False
    assert (found, gateway.counters.moves) == ([old, old + 1], mode is Update.ABORT)
    return True


async def test_weights_that_cannot_be_loaded_leave_the_old_ones(engine: Engine, weights: Path):
    old = engine.stats().version
    await engine.pause()
    with pytest.raises(BadWeights):
        await engine.load(old + 1, weights / "missing")
    await engine.resume()
    answer = Answer(engine, a_request())
    await answer.end()
    assert set(answer.versions) == {old}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": ()}, "prompt"),
        ({"prompt": PROMPT * 1000}, "prompt"),
        ({"prompt": (1, -1)}, "prompt"),
        ({"sampling": Sampling(max_tokens=0)}, "max_tokens"),
        ({"sampling": Sampling(max_tokens=1, temperature=-1.0)}, "temperature"),
        ({"sampling": Sampling(max_tokens=1, temperature=1e300)}, "temperature"),
        ({"sampling": Sampling(max_tokens=1, temperature=1e-300)}, "temperature"),
        ({"sampling": Sampling(max_tokens=1, top_p=0.0)}, "top_p"),
        ({"sampling": Sampling(max_tokens=1, seed=2**64)}, "seed"),
        ({"sampling": Sampling(max_tokens=1, top_k=-1)}, "top_k"),
        ({"sampling": Sampling(max_tokens=1, min_p=1.5)}, "min_p"),
        ({"sampling": Sampling(max_tokens=1, presence_penalty=3.0)}, "presence_penalty"),
        ({"sampling": Sampling(max_tokens=1, repetition_penalty=0.0)}, "repetition_penalty"),
        ({"sampling": Sampling(max_tokens=1, logit_bias={-1: 1.0})}, "logit_bias"),
        ({"sampling": Sampling(max_tokens=1, logit_bias={1: 101.0})}, "logit_bias"),
        ({"sampling": Sampling(max_tokens=1, top_logprobs=21)}, "top_logprobs"),
    ],
)
async def test_a_request_that_can_never_run_is_refused(
    engine: Engine, fields: dict[str, object], field: str
):
    with pytest.raises(BadInput) as refused:
        await Answer(engine, a_request("bad", **fields)).end()
    assert refused.value.field == field
    assert await Answer(engine, a_request("good")).end() is FinishReason.LENGTH


def a_telling(name: str) -> EngineRequest:
    return a_request(name, sampling=Sampling(max_tokens=4, top_logprobs=2))


async def test_every_way_to_sample_is_obeyed_or_refused_by_its_name(engine: Engine):
    how = {
        **{"top_k": 3, "min_p": 0.1, "presence_penalty": 1.0, "frequency_penalty": -1.0},
        **{"repetition_penalty": 1.2, "logit_bias": {1: -100.0}},
    }
    shaped = Answer(engine, a_request("a", sampling=Sampling(max_tokens=4, **how)))
    assert await shaped.end() is FinishReason.LENGTH
    if "top_logprobs" in getattr(engine, "lacks", ()):
        with pytest.raises(BadInput, match="top_logprobs"):
            await Answer(engine, a_telling("b")).end()
        return
    told = Answer(engine, a_telling("b"))
    await told.end()
    assert 1 not in shaped.tokens
    tops = [top for chunk in told.chunks for top in chunk.tops]
    logprobs = [one for chunk in told.chunks for one in chunk.logprobs]
    assert [len(top) for top in tops] == [2] * 4
    for top, token, logprob in zip(tops, told.tokens, logprobs, strict=True):
        assert top[0][1] >= top[1][1]
        assert dict(top).get(token, logprob) == pytest.approx(logprob, abs=1e-5)


async def test_a_name_is_used_once_at_a_time(engine: Engine):
    first = Answer(engine, a_request(max_tokens=LONG))
    await first.begun.wait()
    with pytest.raises(BadInput, match="already running"):
        await Answer(engine, a_request()).end()
    assert await first.end() is FinishReason.LENGTH
    assert await Answer(engine, a_request()).end() is FinishReason.LENGTH


async def test_stats_count_what_was_done(engine: Engine):
    before = engine.stats()
    await Answer(engine, a_request(max_tokens=5)).end()
    after = engine.stats()
    assert after.prompt_tokens - before.prompt_tokens == len(PROMPT)
    assert after.sampled_tokens - before.sampled_tokens == 5
    assert (after.running, after.waiting) == (0, 0)


@pytest.mark.parametrize("make", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("how", ["closed", "declared"])
async def test_an_engine_that_was_closed_or_declared_so_is_gone(
    make: Maker, weights: Path, how: str
):
    engine = await make(weights)
    under_way = Answer(engine, a_request(max_tokens=LONG))
    await under_way.begun.wait()
    if how == "closed":
        await engine.aclose()
    else:
        engine.crash("it was declared so")
    with pytest.raises(EngineGone, match=how):
        await under_way.end()
    verbs = [engine.pause(), engine.resume(), engine.abort("r"), engine.load(1, weights)]
    for verb in [*verbs, Answer(engine, a_request("late")).end()]:
        with pytest.raises(EngineGone):
            await verb
    await engine.aclose()
