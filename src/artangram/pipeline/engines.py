"""Which engines a run samples with: our own in processes beside it, or servers of vLLM."""

from pathlib import Path
from zlib import crc32

from artangram.gateway.engines.protocol import Engine
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import Settings
from artangram.gateway.engines.vllmprocess import VllmProcess, VllmSettings
from artangram.pipeline.fleet import Start
from artangram.pipeline.settings import RunSettings


def engines_of(run: RunSettings, *, max_context: int, log: Path) -> Start:
    """What starts an engine of this run; a sequence has at most `max_context` tokens."""
    return _vllm(run, max_context, log) if run.vllm else _torch(run)


def _torch(run: RunSettings) -> Start:
    async def start(name: str, version: int, directory: Path) -> Engine:
        settings = Settings(
            directory=str(directory),
            num_slots=run.slots,
            version=version,
            seed=crc32(f"{run.seed} {name} {version}".encode()),
        )
        return await TorchEngineProcess.start(settings, name=name)

    return start


def _vllm(run: RunSettings, max_context: int, log: Path) -> Start:
    python, *options = run.vllm

    async def start(name: str, version: int, directory: Path) -> Engine:
        settings = VllmSettings(
            python=python,
            directory=str(directory),
            max_context=max_context,
            version=version,
            options=("--max-num-seqs", str(run.slots), *options),
            log=str(log),
        )
        return await VllmProcess.start(settings, name=name)

    return start
