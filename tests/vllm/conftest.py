"""Two real vLLM servers on this machine's cores: only where the environment names their Python.

`ARTANGRAM_VLLM_PYTHON` is the Python of an environment with vLLM; without it nothing here is
collected. `ARTANGRAM_VLLM_RESULT` names the file that the outcome is written to.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from artangram.gateway.engines.vllmprocess import VllmProcess, VllmSettings
from artangram_bench.result import Origin

PYTHON = os.environ.get("ARTANGRAM_VLLM_PYTHON", "")
RESULT = os.environ.get("ARTANGRAM_VLLM_RESULT", "")
CONTEXT = 2048

collect_ignore_glob = [] if PYTHON else ["test_*.py"]


class Book:
    """What is written down about this run."""

    def __init__(self) -> None:
        self.origin = Origin()
        self.outcomes: dict[str, str] = {}
        self.figures: dict[str, object] = {}


_BOOK = Book()


@pytest.fixture(scope="session")
def figures() -> dict[str, object]:
    return _BOOK.figures


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.failed:
        _BOOK.outcomes[report.nodeid.rpartition("::")[2]] = report.outcome


def pytest_sessionfinish() -> None:
    if RESULT and _BOOK.outcomes:
        figures = {**_BOOK.figures, "tests": _BOOK.outcomes}
        result = _BOOK.origin.result("Does a real vLLM keep an engine's promises?", figures)
        data = msgspec.json.format(msgspec.json.encode(result), indent=1)
        Path(RESULT).write_bytes(data + b"\n")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same model with three different weights."""
    from models_support import a_model

    from artangram.models.directory import save_model

    folder = tmp_path_factory.mktemp("models")
    for seed in range(3):
        save_model(a_model(seed=seed, max_context=CONTEXT), folder / str(seed))
    return [folder / str(seed) for seed in range(3)]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers(
    models: list[Path], tmp_path_factory: pytest.TempPathFactory, figures: dict[str, object]
) -> AsyncIterator[list[VllmProcess]]:
    logs = tmp_path_factory.mktemp("logs")
    plans = {f"vllm-{n}": settings(models[0], core=n, log=logs / f"{n}.log") for n in range(2)}
    began_at = perf_counter()
    async with started(plans) as engines:
        figures["two_servers_start_s"] = round(perf_counter() - began_at, 1)
        yield engines


@asynccontextmanager
async def started(plans: Mapping[str, VllmSettings]) -> AsyncIterator[list[VllmProcess]]:
    """Servers by name, started together; none of them outlives the block."""
    starting = [
        asyncio.create_task(VllmProcess.start(plan, name=name)) for name, plan in plans.items()
    ]
    try:
        yield await asyncio.gather(*starting)
    finally:
        for end in await asyncio.gather(*starting, return_exceptions=True):
            if isinstance(end, VllmProcess):
                await end.aclose()


def settings(
    directory: Path, *, core: int, log: Path, more: tuple[str, ...] = (), **fields: Any
) -> VllmSettings:
    """Of a server on a core of its own, as far as there are cores."""
    cores = sorted(os.sched_getaffinity(0))
    return VllmSettings(
        python=PYTHON,
        directory=str(directory),
        max_context=CONTEXT,
        dtype="float32",
        options=("--enforce-eager", *more),
        environ={
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": str(cores[core % len(cores)]),
        },
        log=str(log),
        **fields,
    )


def skip_without_nixl() -> None:
    if subprocess.run([PYTHON, "-c", "import nixl"], check=False).returncode:
        pytest.skip("vLLM's environment has no nixl")
