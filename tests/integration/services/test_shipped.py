"""The services that come with the cluster, each with real weights on a real device."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.lease import Devices
from artangram.services import Service, ServiceHost, cpu_devices, cpu_host
from artangram.services.shipped.endpoint import endpoint
from artangram.services.shipped.similarity import similarity

NODE = NodeId("gpu-0")
CORE = min(os.sched_getaffinity(0))


async def answer(host: ServiceHost, service: Service, payload: object) -> Any:
    """Deploy, restore, ask."""
    await host.deploy(service)
    devices = Devices(Resource("gpu"), NODE, 0, 1, service.id, restored=True)
    async with asyncio.timeout(60), host.using(devices) as residency:
        return msgspec.json.decode(await residency.ask(msgspec.json.encode(payload)))


def a_pair(text: str, reference: str) -> dict[str, str]:
    return {"text": text, "reference": reference}


async def test_models_of_the_cluster_on_one_device(tmp_path: Path):
    """One test, for a zygote with torch takes seconds to start."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    torch.set_num_threads(1)
    host = await cpu_host(NODE, cpu_devices((CORE,), count=1, memory_mb=700))
    try:
        await _judge_by_similarity(host)
        await _teach(host, tmp_path)
        await _reward(host, tmp_path)
    finally:
        await host.aclose()


async def _judge_by_similarity(host: ServiceHost) -> None:
    """The expected numbers are those that the model's own documentation publishes."""
    weather, sun, stadium = (
        "The weather is lovely today.",
        "It's so sunny outside!",
        "He drove to the stadium.",
    )
    pairs = [a_pair(weather, sun), a_pair(weather, stadium), a_pair(sun, stadium)]
    found = await answer(host, similarity(), pairs)
    assert [each["score"] for each in found] == pytest.approx([0.6660, 0.1046, 0.1411], abs=1e-4)
    same = await answer(host, similarity(), [a_pair(text, text) for text in (weather, sun, "a")])
    assert max(each["score"] for each in same) <= 1.0, "1.0000001 is no cosine"
    cost = host.deployed[similarity().id].spec.batch_cost
    assert 0.0 < cost <= 1.0, "on cores no payload of a batch is free"


async def _teach(host: ServiceHost, directory: Path) -> None:
    import torch

    from artangram.models.causal import score
    from artangram.models.config import ModelConfig
    from artangram.models.directory import save_model
    from artangram.models.llama import Llama
    from artangram.models.packed import pack
    from artangram.services.shipped.teacher import teacher

    model = Llama(ModelConfig(vocab_size=50), seed=3)
    save_model(model, directory / "model")
    texts = [[1, 2, 3, 4], [7, 8]]
    found = await answer(
        host,
        teacher("teacher", directory / "model"),
        [{"token_ids": texts[0]}, {"token_ids": texts[1], "temperature": 2.0}],
    )
    for text, temperature, each in zip(texts, (1.0, 2.0), found, strict=True):
        packed = pack([text])
        with torch.inference_mode():
            own = score(model, packed, at=packed.later_tokens(), temperature=temperature)
        assert each["logprobs"] == pytest.approx(own.logprobs.tolist(), abs=1e-5)


async def _reward(host: ServiceHost, directory: Path) -> None:
    from artangram.services.shipped.reward import reward, train

    weights = directory / "reward.safetensors"
    assert train(weights, num_steps=20) > 0.7
    intact, broken = await answer(
        host,
        reward("reward", weights),
        [{"text": "def load(self, path=None):"}, {"text": "fde l(oadfles, hpat=None):"}],
    )
    assert intact["reward"] > broken["reward"]


@pytest.fixture
async def judge() -> AsyncIterator[str]:
    """A server that speaks the protocol: gives 7 points, or what the answer says."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        said = body["messages"][0]["content"]
        if "busy" in said:
            return web.json_response({}, status=503)
        reply = "I would rather not" if "shy" in said else "7"
        return web.json_response({"choices": [{"message": {"content": reply}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}/v1"
    await runner.cleanup()


@pytest.fixture
async def light() -> AsyncIterator[ServiceHost]:
    host = await cpu_host(NODE, cpu_devices((CORE,), count=1, memory_mb=300), preload=("aiohttp",))
    yield host
    await host.aclose()


def asked(question: str) -> dict[str, str]:
    return {"question": question, "answer": "42"}


async def test_a_judge_behind_an_endpoint(light: ServiceHost, judge: str):
    service = endpoint("judge", judge, model="any")
    assert await answer(light, service, asked("6 * 7?")) == {"score": 0.7, "text": "7"}
    with pytest.raises(CallFailed, match="without a number"):
        await answer(light, service, asked("shy?"))
    with pytest.raises(InfraFailed, match="answered 503"):
        await answer(light, service, asked("busy?"))


async def test_an_endpoint_that_is_not_there_is_infrastructure(light: ServiceHost):
    service = endpoint("judge", "http://127.0.0.1:9/v1", model="any")
    with pytest.raises(InfraFailed, match="cannot be reached"):
        await answer(light, service, asked("6 * 7?"))


@pytest.mark.parametrize(
    ("options", "field"),
    [({"base_url": "nowhere"}, "base_url"), ({"token_environ": "NO_SUCH_TOKEN"}, "token_environ")],
)
async def test_an_endpoint_that_cannot_work_is_refused(
    light: ServiceHost, options: dict[str, str], field: str
):
    given = {"base_url": "http://127.0.0.1:9/v1"} | options
    service = endpoint("judge", given.pop("base_url"), model="any", **given)
    with pytest.raises(BadInput) as caught:
        await light.deploy(service)
    assert caught.value.field == field
