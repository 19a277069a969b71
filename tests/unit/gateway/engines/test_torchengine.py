"""The embedded engine in a thread: its loop is never blocked, and its defects are told."""

import asyncio
import threading
from pathlib import Path

import pytest
from models_support import a_model

from artangram.gateway.engines.protocol import EngineGone, EngineRequest, Sampling, TokenChunk
from artangram.gateway.engines.torchbatch import DecodeBatch
from artangram.gateway.engines.torchengine import TorchEngine
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.models.directory import save_model


@pytest.fixture
async def engine(tmp_path: Path):
    save_model(a_model(max_context=512), tmp_path)
    engine = await TorchEngine.start(TorchEngineSettings(directory=str(tmp_path), num_slots=2))
    yield engine
    await engine.aclose()


async def answered(engine: TorchEngine, name: str, *, max_tokens: int = 5) -> list[int]:
    sampling = Sampling(max_tokens=max_tokens, seed=1)
    request = EngineRequest(id=name, prompt=(1, 2), sampling=sampling)
    items = [item async for item in engine.stream(request)]
    return [token for item in items if isinstance(item, TokenChunk) for token in item.token_ids]


async def test_more_requests_than_slots_wait_for_their_turn(engine: TorchEngine):
    answers = await asyncio.gather(*(answered(engine, str(n)) for n in range(7)))
    assert [len(answer) for answer in answers] == [5] * 7
    assert len({tuple(answer) for answer in answers}) == 1  # The same seed, in any slot.


async def test_the_loop_goes_round_while_tokens_are_sampled(engine: TorchEngine):
    running = asyncio.create_task(answered(engine, "r", max_tokens=300))
    rounds = 0
    while not running.done():
        await asyncio.sleep(0.001)
        rounds += 1
    assert len(await running) == 300
    assert rounds > 5


async def test_an_unknown_token_is_refused_and_harms_nobody(engine: TorchEngine):
    request = EngineRequest(id="r", prompt=(10**6,), sampling=Sampling(max_tokens=1))
    with pytest.raises(ValueError, match="unknown tokens"):
        await anext(engine.stream(request))
    assert len(await answered(engine, "next")) == 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_defect_in_a_step_is_the_end_and_is_told(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
):
    def broken(batch: DecodeBatch) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(DecodeBatch, "step", broken)
    with pytest.raises(EngineGone, match="no such kernel"):
        await answered(engine, "r")
    with pytest.raises(EngineGone):
        await engine.pause()


async def test_without_a_model_nothing_starts_and_nothing_stays(tmp_path: Path):
    with pytest.raises(EngineGone, match="name the directory of a saved model"):
        await TorchEngine.start(TorchEngineSettings(directory=str(tmp_path)), name="empty")
    assert not [thread for thread in threading.enumerate() if "empty" in thread.name]
