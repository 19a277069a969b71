"""A cluster that asks for GPUs where there are none, or none that torch can use."""

from pathlib import Path

import pytest

import artangram
from artangram.core.errors import BadInput
from artangram.orchestrator.callbackends import Cuda
from artangram.sandbox.fake import FakeProvider


async def refused() -> str:
    with pytest.raises(BadInput) as caught:
        async with artangram.local(provider=FakeProvider(), devices=Cuda()):
            pass
    return str(caught.value)


async def test_without_a_gpu_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = await refused()
    assert "no GPU that nvidia-smi knows" in said
    assert "install the driver" in said
    assert "`devices: 1`" in said


async def test_gpus_that_torch_cannot_use_are_told_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch can use the GPUs of this machine")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor n in 0 1; do echo $n, GPU-$n, 81559, NVIDIA H100; done\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    said = await refused()
    assert "torch finds 0 of 2 GPUs" in said
    assert "install a torch built for their CUDA" in said
