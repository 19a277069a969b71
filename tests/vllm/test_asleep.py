"""A real server as a model service: it wakes when it is restored and sleeps when it is evicted.

On cores vLLM frees nothing while it sleeps; what is tested is that it obeys, and answers as before.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.lease import Devices
from artangram.gateway.engines.vllmprocess import VllmProcess
from artangram.services import Service, ServiceHost
from artangram.services.vllm import LOADER, VllmDevices

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODE = NodeId("gpu-0")
JUDGE = ServiceId("judge")
PROMPT = [5, 6, 7]


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
    async with asyncio.timeout(60), host.using(devices) as residency:
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
        await host.free(Devices(Resource("gpu"), NODE, 0, 1, ServiceId(""), evicted=(JUDGE,)))
        assert await is_asleep(url)
        began_at = perf_counter()
        assert await tokens(host, models[0], restored=True) == first
        figures["sleeping_server_answers_s"] = round(perf_counter() - began_at, 3)
    finally:
        await host.aclose()
    assert await is_asleep(url)
