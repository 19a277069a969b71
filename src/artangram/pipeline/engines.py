"""Which engines a run samples with: our own in processes beside it, or servers of vLLM.

When the engine of a slot is lost, another is started there.
"""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from artangram.gateway.engines.protocol import Engine
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.gateway.engines.vllm import VllmEngine
from artangram.gateway.engines.vllmprocess import VllmProcess, VllmSettings
from artangram.pipeline.enginepools import EnginePool, EnginesSpec
from artangram.weights import load_version

Start = Callable[[str, int, Path], Awaitable[Engine]]
"""An engine of this name, with this version from that directory."""


class EngineSlot(Struct, frozen=True):
    """A place for one engine."""

    hardware: str
    start: Start


def slots_of(spec: EnginesSpec, *, seed: int, max_context: int, log: Path) -> Iterator[EngineSlot]:
    """One for each engine; a sequence has at most `max_context` tokens."""
    for hardware, pool in spec.pools.items():
        for number in range(pool.size):
            if pool.urls:
                start = _given(pool.urls[number])
            elif pool.vllm:
                start = _vllm(pool, number, max_context=max_context, log=log)
            else:
                start = _torch(pool, seed)
            yield EngineSlot(hardware, start)


def _torch(pool: EnginePool, seed: int) -> Start:
    async def start(name: str, version: int, directory: Path) -> Engine:
        settings = TorchEngineSettings(
            directory=str(directory),
            num_slots=pool.slots,
            version=version,
            seed=crc32(f"{seed} {name} {version}".encode()),
        )
        return await TorchEngineProcess.start(settings, name=name)

    return start


def _vllm(pool: EnginePool, number: int, *, max_context: int, log: Path) -> Start:
    python, *options = pool.vllm

    async def start(name: str, version: int, directory: Path) -> Engine:
        settings = VllmSettings(
            python=python,
            directory=str(directory),
            max_context=max_context,
            version=version,
            kv_connector=pool.kv_connector,
            structured_output=pool.structured_output,
            options=("--max-num-seqs", str(pool.slots), *options),
            environ={"CUDA_VISIBLE_DEVICES": pool.devices[number]} if pool.devices else {},
            log=str(log),
        )
        return await VllmProcess.start(settings, name=name)

    return start


def _given(url: str) -> Start:
    async def start(name: str, version: int, directory: Path) -> Engine:
        engine = await VllmEngine.connect(url, name=name, version=version, directory=directory)
        try:
            # It may hold weights of another run, or of an earlier step of this one.
            await load_version(engine, version, directory)
        except BaseException:
            await engine.aclose()
            raise
        return engine

    return start
