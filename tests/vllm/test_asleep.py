"""A real server as a model service: evicted by sleep, or by its end.

On cores vLLM frees nothing while it sleeps; what is tested is that it obeys, and answers as before.
One that is ended frees everything.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.lease import Devices
from artangram.gateway.engines.vllmprocess import VllmProcess
from artangram.services import Service, ServiceHost
from artangram.services.vllm import LOADER, VllmDevices

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODE = NodeId("gpu-0")
JUDGE = ServiceId("judge")
PROMPT = [5, 6, 7]
PYTHON = os.environ.get("ARTANGRAM_VLLM_PYTHON", "")
GONE = Devices(Resource("gpu"), NODE, 0, 1, ServiceId(""), evicted=(JUDGE,))


def url_of(server: VllmProcess) -> str:
    """Where it listens, by its own command line."""
    words = Path(f"/proc/{server.pid}/cmdline").read_text().split("\0")
    return f"http://127.0.0.1:{words[words.index('--port') + 1]}"


async def is_asleep(url: str) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/is_sleeping") as response:
        found: dict[str, bool] = await response.json()
        return found["is_sleeping"]


@pytest_asyncio.fixture(loop_scope="session")
async def url(servers: list[VllmProcess]) -> AsyncIterator[str]:
    """A server, awake again when the test is over."""
    found = url_of(servers[0])
    yield found
    async with aiohttp.ClientSession() as session, session.post(f"{found}/wake_up") as response:
        assert response.status == 200


async def tokens(host: ServiceHost, model: Path, *, restored: bool) -> list[int]:
    """What the model says next, without chance."""
    payload = {
        "model": str(model),
        "prompt": PROMPT,
        "max_tokens": 8,
        "temperature": 0,
        "return_token_ids": True,
    }
    devices = Devices(Resource("gpu"), NODE, 0, 1, JUDGE, restored=restored)
    async with asyncio.timeout(600), host.using(devices) as residency:
        answer: Any = msgspec.json.decode(await residency.ask(msgspec.json.encode(payload)))
    found: list[int] = answer["choices"][0]["token_ids"]
    return found


async def test_a_real_server_sleeps_when_evicted_and_answers_the_same_after_it(
    url: str, models: list[Path], figures: dict[str, object]
):
    host = ServiceHost(NODE, VllmDevices(num_devices=1, memory_mb=4000))
    try:
        options = {"urls": [url], "weights_mb": 100, "path": "/v1/completions"}
        await host.deploy(Service(id=JUDGE, loader=LOADER, options=options))
        assert await is_asleep(url)
        first = await tokens(host, models[0], restored=True)
        assert len(first) == 8
        assert not await is_asleep(url)
        await host.free(GONE)
        assert await is_asleep(url)
        began_at = perf_counter()
        assert await tokens(host, models[0], restored=True) == first
        figures["sleeping_server_answers_s"] = round(perf_counter() - began_at, 3)
    finally:
        await host.aclose()
    assert await is_asleep(url)


def a_service(model: Path) -> Service:
    core = min(os.sched_getaffinity(0))
    argv = [
        *(str(Path(PYTHON).absolute()), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--host", "127.0.0.1", "--port", "{port}"),
        *("--dtype", "float32", "--max-model-len", "256"),
        *("--enforce-eager", "--skip-tokenizer-init", "--tensor-parallel-size", "{units}"),
    ]
    environ = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    options = {"argv": argv, "environ": environ, "weights_mb": 2600, "path": "/v1/completions"}
    return Service(id=JUDGE, loader=LOADER, options=options)


def used_mb() -> float:
    """Memory of the server that `a_service` starts, and of all that it started."""
    mine = [_mb(process) for process in Path("/proc").glob("[0-9]*") if _is_mine(process)]
    return sum(mine)


def _is_mine(process: Path) -> bool:
    """Is the leader of its session a server as we start it?"""
    try:
        session = (process / "stat").read_text().rpartition(")")[2].split()[3]
        return b"--tensor-parallel-size" in Path(f"/proc/{session}/cmdline").read_bytes()
    except OSError:
        return False


def _mb(process: Path) -> float:
    try:
        rollup = (process / "smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in rollup.splitlines() if line[:4] == "Pss:")


@pytest.mark.timeout(900)  # It starts twice, which takes minutes on a busy machine.
async def test_a_real_server_ends_when_evicted_and_answers_the_same_after_it(
    models: list[Path], figures: dict[str, object]
):
    host = ServiceHost(NODE, VllmDevices(num_devices=1, memory_mb=4000))
    try:
        spec = await host.deploy(a_service(models[0]))
        assert spec.restore_s is not None
        figures["server_restored_by_start_s"] = round(spec.restore_s, 1)
        first = await tokens(host, models[0], restored=True)
        assert used_mb() > 500
        figures["started_server_mb"] = round(used_mb())
        began_at = perf_counter()
        await host.free(GONE)
        figures["server_evicted_by_end_s"] = round(perf_counter() - began_at, 2)
        assert used_mb() == 0
        assert await tokens(host, models[0], restored=True) == first
    finally:
        await host.aclose()
