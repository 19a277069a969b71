"""Which GPUs are ours, by what `nvidia-smi` and the environment say."""

from pathlib import Path

import pytest

from artangram.core.ids import ServiceId
from artangram.services import Service
from artangram.services.cuda import CONTEXT_MB, CudaDevices, devices_outlook
from artangram.services.devices import Deployment
from artangram.services.gpus import Gpu, seeing, usable_gpus
from artangram.services.processes import a_spawner

GPUS = [Gpu(n, f"GPU-{n}{n}-uuid", 81559, "NVIDIA H100 80GB HBM3") for n in range(4)]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with four GPUs, as `nvidia-smi` tells of them."""
    lines = "".join(f"{g.index}, {g.uuid}, {g.memory_mb}, {g.name}\n" for g in GPUS)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat <<END\n{lines}END\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("visible", "indexes"),
    [
        (None, [0, 1, 2, 3]),
        ("2,3", [2, 3]),
        ("3, 1", [3, 1]),
        ("GPU-22-uuid,GPU-0", [2, 0]),
        ("1,9,2", [1]),
        ("1,1", [1]),
        ("GPU-", []),
        ("MIG-1", []),
        ("", []),
        ("-1", []),
    ],
)
def test_only_what_the_environment_lets_us_see_is_used(
    visible: str | None, indexes: list[int]
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [gpu.index for gpu in usable_gpus(environ)] == indexes


def test_without_the_driver_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert usable_gpus({}) == []


def test_a_process_is_told_numbers_of_the_bus() -> None:
    environ = seeing(GPUS[2:])
    assert environ == {"CUDA_VISIBLE_DEVICES": "2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.usefixtures("machine")
def test_the_outlook_says_what_would_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch can use the GPUs of this machine")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    outlook = devices_outlook()
    assert not outlook.available
    assert outlook.detail == "2 (2,3): NVIDIA H100 80GB HBM3 with 81559 MB; torch finds 0"
    assert "torch built for their CUDA" in outlook.how
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "devices of cores" in devices_outlook().detail


async def test_a_wide_copy_sees_its_gpus_and_may_take_its_share_of_each() -> None:
    spawner = await a_spawner(())
    devices = CudaDevices(spawner, GPUS[1:], memory_mb=80000)
    service = Service(id=ServiceId("wide"), loader="m:f", degrees=(1, 2))
    deployment = Deployment(service=service, files=(), limit_mb=50_000, weights_mb=40_000)
    try:
        [whole] = devices.specs(deployment, 0, 1)
        [half] = devices.specs(deployment, 1, 2)
    finally:
        await devices.aclose()
    assert (whole.environ["CUDA_VISIBLE_DEVICES"], whole.device) == ("1", "cuda")
    assert (half.environ["CUDA_VISIBLE_DEVICES"], half.environ["ARTANGRAM_UNITS"]) == ("2,3", "2")
    assert whole.limit_mb == 50_000 - CONTEXT_MB
    assert half.limit_mb == 10_000 + 20_000 - CONTEXT_MB
