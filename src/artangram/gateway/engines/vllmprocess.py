"""A vLLM server of our own: started, watched, and ended with everything it started.

- vLLM lives in a Python of its own (`python`), since its packages clash with others'.
- The server leads a process group; closing the engine kills the group. When we die first, the
  server gets SIGTERM, and takes its workers with it.
"""

import asyncio
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from pathlib import Path
from typing import IO

import aiohttp
import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import EngineGone
from artangram.gateway.engines.vllm import VllmEngine

STARTS_WITHIN_S = 300.0
ENDS_WITHIN_S = 10.0
EXTENSION, RELOAD = "artangram_vllm.Extension", "reload_all"
_LOOK_S = 0.25
_INSIDE = Path(__file__).parent / "inside"


class VllmSettings(Struct, frozen=True, kw_only=True):
    """How to start a server."""

    python: str
    """Of the environment where vLLM is installed."""
    directory: str
    """Of the model."""
    max_context: int
    version: int = 0
    dtype: str = "auto"
    kv_connector: str = ""
    """By which servers read for each other, as `NixlConnector`; needs its own packages there."""
    options: tuple[str, ...] = ()
    """More of vLLM's own."""
    environ: dict[str, str] = {}
    log: str = os.devnull
    """Where the server's words go."""


class VllmProcess(VllmEngine):
    """See `protocol.Engine`. Made by `start`, ended by `aclose`."""

    _process: Process
    _waiting: "asyncio.Task[None]"

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, settings: VllmSettings, *, name: str = "vllm") -> "VllmProcess":
        """Returns when the server answers. Raises `EngineGone` when it does not."""
        if not Path(settings.python).exists():  # noqa: ASYNC240 - one look
            raise BadInput("python", f"{settings.python} is missing", "install vLLM there first")
        port = _free_port()
        process = await _spawned(settings, port)
        try:
            await _healthy(process, port, log=settings.log)
            engine = await cls.connect(
                f"http://127.0.0.1:{port}",
                name=name,
                version=settings.version,
                directory=Path(settings.directory),
                reload=RELOAD,
                cache_kind=settings.kv_connector,
            )
        except BaseException:
            await _killed(process)
            raise
        assert isinstance(engine, cls)
        engine._process = process
        engine._waiting = asyncio.create_task(engine._wait())
        return engine

    async def aclose(self) -> None:
        await super().aclose()
        await _killed(self._process)
        await asyncio.wait({self._waiting})

    async def _wait(self) -> None:
        code = await self._process.wait()
        self.crash(f"its process ended with {code}")


def command(settings: VllmSettings, port: int) -> list[str]:
    return [
        settings.python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *("--model", settings.directory),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--max-model-len", str(settings.max_context)),
        *("--dtype", settings.dtype),
        *("--logprobs-mode", "processed_logprobs"),
        *("--worker-extension-cls", EXTENSION),
        # Tokens in and out; without it the server refuses.
        "--enable-scale-out",
        # Ours is made of tokens; words are the gateway's affair.
        "--skip-tokenizer-init",
        "--disable-uvicorn-access-log",
        *_connected(settings),
        *settings.options,
    ]


def _connected(settings: VllmSettings) -> list[str]:
    if not settings.kv_connector:
        return []
    transfer = {
        "kv_connector": settings.kv_connector,
        "kv_role": "kv_both",
        # What cannot be fetched is read anew; else the request would fail.
        "kv_load_failure_policy": "recompute",
    }
    return ["--kv-transfer-config", msgspec.json.encode(transfer).decode()]


async def _spawned(settings: VllmSettings, port: int) -> Process:
    environ = {
        **os.environ,
        "PYTHONPATH": str(_INSIDE),
        # Pause, resume, versions and weights are behind this.
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        # Servers of one machine must not share it; others are reached at this one's address.
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(_free_port()),
        **settings.environ,
    }
    with _opened(settings.log) as log:
        return await asyncio.create_subprocess_exec(
            # The kernel's own leash: a preexec function is not safe in a program with threads.
            *("setpriv", "--pdeathsig", "TERM", "--"),
            *command(settings, port),
            env=environ,
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _opened(log: str) -> IO[bytes]:
    return Path(log).open("ab")


async def _healthy(process: Process, port: int, *, log: str) -> None:
    """Return when the server says it is well."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTS_WITHIN_S):
                while process.returncode is None:
                    with suppress(aiohttp.ClientError, OSError):
                        async with http.get("/health") as response:
                            if response.status == 200:
                                return
                    await asyncio.sleep(_LOOK_S)
    how = "did not start in time" if process.returncode is None else f"ended: {process.returncode}"
    raise EngineGone(f"vLLM {how}; see {log}")


async def _killed(process: Process) -> None:
    """End the group, kindly first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN_S):
                await process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
