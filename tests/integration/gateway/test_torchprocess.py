"""An engine in a process of its own: what its death means, and what ours means to it."""

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S
from gateway_support import until
from models_support import a_model

from artangram.core.rollout.weights import Versions
from artangram.gateway import Gateway, StallLimits, splits_of
from artangram.gateway.engines.protocol import (
    BadWeights,
    EngineGone,
    EngineRequest,
    Finish,
    Sampling,
    TokenChunk,
)
from artangram.gateway.engines.torchengine import TorchEngine
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.models.directory import save_model, save_weights
from artangram.weights import roll

OWNER = """
import asyncio, sys
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings

async def main():
    engine = await TorchEngineProcess.start(TorchEngineSettings(directory=sys.argv[1]))
    print(engine.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save_model(a_model(max_context=512), tmp_path)
    return tmp_path


def a_request(max_tokens: int) -> EngineRequest:
    return EngineRequest(id="r", prompt=(1, 2), sampling=Sampling(max_tokens=max_tokens, seed=1))


async def answered(engine: TorchEngineProcess, max_tokens: int = 6) -> list[TokenChunk | Finish]:
    async with asyncio.timeout(PATIENCE_S):
        return [item async for item in engine.stream(a_request(max_tokens))]


def tokens_of(answer: list[TokenChunk | Finish]) -> list[int]:
    """Its tokens, in however many chunks they came."""
    return [token for item in answer if isinstance(item, TokenChunk) for token in item.token_ids]


async def test_a_killed_engine_is_gone_for_everybody(directory: Path):
    engine = await TorchEngineProcess.start(TorchEngineSettings(directory=str(directory)))
    await engine.pause()
    under_way = asyncio.create_task(answered(engine, 500))
    await asyncio.sleep(0)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineGone, match="process ended"):
        await under_way
    with pytest.raises(EngineGone):
        await engine.resume()
    await engine.aclose()


async def test_an_engine_that_does_not_answer_is_killed(directory: Path):
    settings = TorchEngineSettings(directory=str(directory))
    engine = await TorchEngineProcess.start(settings, silence_s=1.0)
    os.kill(engine.pid, signal.SIGSTOP)
    with pytest.raises(EngineGone, match="did not answer"):
        await answered(engine)
    await engine.aclose()


async def test_turns_of_a_stopped_process_go_on_elsewhere_and_it_is_replaced(directory: Path):
    settings = TorchEngineSettings(directory=str(directory))
    stopped, other = await asyncio.gather(
        *(TorchEngineProcess.start(settings, name=name) for name in ("stopped", "other"))
    )
    lost = asyncio.Event()
    gateway = Gateway(stalls=StallLimits(least_s=3.0), on_lost=lambda engine, error: lost.set())
    gateway.add(stopped)
    session = gateway.open("s")
    turn = asyncio.create_task(session.generate((1, 2), Sampling(max_tokens=400)))
    await until(lambda: session.oldest_version is not None)  # The first tokens are there.
    os.kill(stopped.pid, signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_S):
        await lost.wait()
        gateway.add(other)
        reply = await turn
    assert len(reply.token_ids) == 400
    assert (reply.replica, gateway.counters.stalled, gateway.counters.moves) == ("other", 1, 1)
    assert other.stats().sampled_tokens < 400
    for engine in (stopped, other):
        await engine.aclose()


@pytest.mark.parametrize("half", ["reader", "writer"])
async def test_a_half_that_is_killed_costs_no_token(directory: Path, half: str):
    settings = TorchEngineSettings(directory=str(directory))
    reader, writer = await asyncio.gather(
        *(TorchEngineProcess.start(settings, name=name) for name in ("reader", "writer"))
    )
    other = await TorchEngine.start(settings, name="other")
    prompt, sampling = (1, 2, 3) * 60, Sampling(max_tokens=300, temperature=0)
    whole = Gateway()
    whole.add(other)
    expected = await whole.open("s").generate(prompt, sampling)
    stages = {"default": {"prefill": "compute", "decode": "bandwidth"}}
    gateway = Gateway(split=splits_of(stages))
    gateway.add(reader, hardware="compute")
    gateway.add(writer, hardware="bandwidth")
    gateway.add(other, hardware="bandwidth")
    gateway.hold("other")
    session = gateway.open("s")
    if half == "reader":
        await reader.pause()  # So that it has not read when it dies.
    turn = asyncio.create_task(session.generate(prompt, sampling))
    if half == "writer":
        await until(lambda: session.oldest_version is not None)
    else:
        await until(lambda: gateway.replicas[0].turns == 1)
    gateway.release("other")
    os.kill({"reader": reader, "writer": writer}[half].pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        reply = await turn
    assert reply.token_ids == expected.token_ids
    assert reply.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    # The prompt was read once more where it was lost, and only there.
    expected_counts = {"reader": (0, 1), "writer": (2, 0)}
    assert (gateway.counters.splits, gateway.counters.unsplit) == expected_counts[half]
    for engine in (reader, writer, other):
        await engine.aclose()


async def test_broken_weights_are_refused_and_the_old_ones_go_on(directory: Path, tmp_path: Path):
    engine = await TorchEngineProcess.start(TorchEngineSettings(directory=str(directory)))
    first = tokens_of(await answered(engine))
    broken = tmp_path / "broken"
    broken.mkdir()
    some = dict(list(a_model().tensors().items())[:3])
    save_weights(some, broken / "a.safetensors")
    with pytest.raises(BadWeights, match="missing"):
        await engine.load(1, broken)
    whole = (directory / "model.safetensors").read_bytes()
    for bad in (b"\0" * 100, whole[: len(whole) // 2], whole[:-1]):
        (broken / "a.safetensors").write_bytes(bad)
        with pytest.raises(BadWeights, match="publish the weights again"):
            await engine.load(1, broken)
    assert tokens_of(await answered(engine)) == first
    await engine.aclose()


@pytest.mark.parametrize("fault", ["killed", "hangs"])
async def test_an_engine_half_way_through_a_load_is_given_up(
    directory: Path, tmp_path: Path, fault: str
):
    engine = await TorchEngineProcess.start(TorchEngineSettings(directory=str(directory)))
    stuck = tmp_path / "stuck"
    stuck.mkdir()
    os.mkfifo(stuck / "a.safetensors")  # Reading it never ends.

    async def pull(replica: str, version: int) -> Path:
        return stuck

    gateway, versions = Gateway(), Versions()
    gateway.add(engine)
    versions.announce(1)
    limit_s = 1.0 if fault == "hangs" else PATIENCE_S
    rolling = asyncio.create_task(roll(gateway, 1, pull=pull, versions=versions, limit_s=limit_s))
    await until(lambda: engine.stats().is_paused)
    if fault == "killed":
        os.kill(engine.pid, signal.SIGKILL)
    (swap,) = (await rolling).swaps
    assert ("process ended" if fault == "killed" else "TimeoutError") in swap.failed
    assert (gateway.replicas, engine.stats().version) == ((), 0)
    with pytest.raises(EngineGone):
        await answered(engine)
    await engine.aclose()


async def test_a_directory_without_a_model_is_told_at_once(tmp_path: Path):
    with pytest.raises(EngineGone, match="name the directory of a saved model"):
        await TorchEngineProcess.start(TorchEngineSettings(directory=str(tmp_path)))


def test_an_engine_ends_when_its_owner_is_killed(directory: Path):
    argv = [sys.executable, "-c", OWNER, str(directory)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        engine = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
    readable, _, _ = select.select([engine], [], [], PATIENCE_S)
    os.close(engine)
    assert readable


def test_the_page_about_engines_runs():
    page = Path(__file__).resolve().parents[3] / "docs" / "engines.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
