"""Real models on devices made of cores: pinned, within their memory, one copy of the weights."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.lease import Devices
from artangram.services import Service, ServiceHost, cpu_devices, cpu_host
from artangram.services.cpu import CpuDevices
from artangram.services.linux import used_mb
from artangram.services.measuring import device_use
from artangram.services.replicas import ProcessReplica

NODE = NodeId("gpu-0")
CORES = tuple(sorted(os.sched_getaffinity(0)))
TOYS = "integration.services.toys"
MEMORY_MB = 250
WEIGHTS_MB = 64


def at(
    service: str, first: int = 0, *, degree: int = 1, restored: bool = True, evicted: str = ""
) -> Devices:
    names = (ServiceId(evicted),) if evicted else ()
    name = ServiceId(service)
    return Devices(Resource("gpu"), NODE, first, degree, name, restored=restored, evicted=names)


async def ask(host: ServiceHost, devices: Devices, payload: object) -> object:
    async with host.using(devices) as residency:
        return msgspec.json.decode(await residency.ask(msgspec.json.encode(payload)))


async def replicas(host: ServiceHost, devices: Devices) -> list[ProcessReplica]:
    async with host.using(devices) as residency:
        return [each for each in residency.replicas if isinstance(each, ProcessReplica)]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of so many megabytes with a number in the middle."""
    path = tmp_path / "weights.bin"
    data = bytearray(WEIGHTS_MB << 20)
    data[WEIGHTS_MB << 19] = 42
    path.write_bytes(data)
    return path


async def test_weights_are_in_memory_once_and_copies_stay_within_their_devices(weights: Path):
    host = await cpu_host(NODE, cpu_devices(CORES[:1], count=2, memory_mb=MEMORY_MB), preload=())
    try:
        for name in ("one", "two"):
            service = Service(
                id=ServiceId(name), loader=f"{TOYS}:heavy", weights=(str(weights),), degrees=(1, 2)
            )
            spec = await host.deploy(service)
            assert spec.weights_mb == WEIGHTS_MB
        for first, name in enumerate(("one", "two")):
            assert await ask(host, at(name, first), WEIGHTS_MB << 19) == 42
        directory = directory_of(host)
        assert [path.name for path in directory.rglob("*.bin")] == [weights.name]
        for first, name in enumerate(("one", "two")):
            [replica] = await replicas(host, at(name, first, restored=False))
            used = used_mb(replica.pid, weights=str(directory))
            assert WEIGHTS_MB <= used <= spec.device_mb(1) <= MEMORY_MB
    finally:
        await host.aclose()


def directory_of(host: ServiceHost) -> Path:
    assert isinstance(host.kind, CpuDevices)
    return host.kind.directory


async def test_a_copy_that_maps_more_than_its_device_has_is_found():
    host = await cpu_host(NODE, cpu_devices(CORES[:1], count=2, memory_mb=MEMORY_MB), preload=())
    try:
        for name in ("fair", "foul"):
            await host.deploy(Service(id=ServiceId(name), loader=f"{TOYS}:obedient"))
        assert await device_use(host) == []
        for first, name in enumerate(("fair", "foul")):
            await ask(host, at(name, first), 1)
        assert [use.is_over for use in await device_use(host)] == [False, False]
        # Shared memory is not counted against a process's limit of data.
        await ask(host, at("foul", 1, restored=False), {"do": "map", "mb": MEMORY_MB})
        fair, foul = await device_use(host)
        assert (fair.services, fair.is_over) == (("fair",), False)
        assert (foul.device, foul.services, foul.is_over) == (1, ("foul",), True)
        assert str(foul).startswith("device 1 (foul): ")
    finally:
        await host.aclose()


async def test_a_copy_runs_on_the_cores_of_its_device():
    host = await cpu_host(NODE, cpu_devices(CORES, count=len(CORES), memory_mb=200), preload=())
    try:
        await host.deploy(Service(id=ServiceId("toy"), loader=f"{TOYS}:obedient"))
        for index, core in enumerate(CORES[:2]):
            assert await ask(host, at("toy", index), {"do": "cores"}) == [core]
    finally:
        await host.aclose()


async def test_a_torch_model_answers_the_same_after_eviction_and_at_any_degree(tmp_path: Path):
    torch = pytest.importorskip("torch")
    import safetensors.torch

    weight = torch.arange(12.0).reshape(3, 4)
    safetensors.torch.save_file({"weight": weight}, tmp_path / "matrix.safetensors")
    payload = [[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    expected = (torch.tensor(payload) @ weight.T).sum(dim=1).tolist()
    host = await cpu_host(NODE, cpu_devices(CORES[:1], count=2, memory_mb=500))
    try:
        service = Service(
            id=ServiceId("matrix"),
            loader=f"{TOYS}:matrix",
            weights=(str(tmp_path / "matrix.safetensors"),),
            degrees=(1, 2),
            example=payload[0],
        )
        await host.deploy(service)
        await host.deploy(Service(id=ServiceId("toy"), loader=f"{TOYS}:obedient"))
        # A payload is a list itself, so a call of three is a list of lists.
        assert await ask(host, at("matrix"), payload) == expected
        assert await ask(host, at("toy", evicted="matrix"), 3) == 3
        assert await ask(host, at("matrix", degree=2, evicted="toy"), payload) == expected
        assert len(await replicas(host, at("matrix", degree=2, restored=False))) == 2
    finally:
        await host.aclose()


async def test_a_model_of_transformers_is_loaded_from_its_directory(tmp_path: Path):
    """One that our own library wrote, so that theirs is imported once, in the zygote."""
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    from models_support import a_model

    model, ids = a_model(), [3, 1, 4]
    weights = saved(model, tmp_path)
    preload = ("torch", "transformers.models.llama.modeling_llama")
    devices = cpu_devices(CORES[:1], count=1, memory_mb=1500)
    host = await cpu_host(NODE, devices, preload=preload)
    try:
        loader = f"{TOYS}:transformer"
        await host.deploy(Service(id=ServiceId("causal"), loader=loader, weights=weights))
        [answer] = await ask(host, at("causal"), [ids])
    finally:
        await host.aclose()
    assert answer == pytest.approx(logits_of(model, ids), abs=1e-4)


def saved(model: Any, directory: Path) -> tuple[str, ...]:
    """The files that make up a model."""
    from artangram.models.directory import save_model

    save_model(model, directory)
    return tuple(sorted(map(str, directory.iterdir())))


def logits_of(model: Any, ids: list[int]) -> list[float]:
    """Of the token after `ids`."""
    import torch

    from artangram.models.packed import pack

    with torch.inference_mode():
        hidden = model.hidden(pack([ids]))
        found: list[float] = model.logits(hidden)[-1].tolist()
    return found
