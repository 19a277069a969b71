"""The servers that `bench gateway` measures, each in its own process.

- `engine`: a scripted engine behind HTTP that answers at once. The others forward to it.
- `gateway`: ours. `LiteLLM`: its proxy, one worker like ours, with its key checked as ours is.
- A server of ours ends when its standard input does, so it never outlives the bench.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from msgspec import Struct

from artangram_bench.gatewayserver import MODEL

STARTS_WITHIN_S = 120.0
_LOOK_S = 0.2


class Contender(Struct, frozen=True, kw_only=True):
    """A server that answers chats."""

    name: str
    url: str
    token: str


class NotHere(Exception):
    """A peer is not installed, or does not start on this machine."""


@asynccontextmanager
async def engine(*, token_s: float = 0.0) -> AsyncIterator[Contender]:
    """The scripted engine. Each token of its answers takes `token_s`."""
    async with _child("engine", str(token_s)) as url:
        yield Contender(name="engine", url=url, token="none")


@asynccontextmanager
async def gateway(behind: Contender) -> AsyncIterator[Contender]:
    token = secrets.token_hex()
    async with _child("gateway", behind.url, token) as url:
        yield Contender(name="gateway", url=url, token=token)


@asynccontextmanager
async def litellm(behind: Contender, program: str) -> AsyncIterator[Contender]:
    """LiteLLM's proxy, from wherever `program` is installed."""
    path = shutil.which(program)
    if path is None:
        raise NotHere(f"there is no program {program}")
    token, port = f"sk-{secrets.token_hex()}", _free_port()
    with TemporaryDirectory(prefix="artangram-bench-") as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps(_litellm_config(behind, token)))  # JSON is YAML.
        process = await asyncio.create_subprocess_exec(
            *(path, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)),
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            await _answering(f"{url}/health/liveliness", process)
            yield Contender(name="LiteLLM", url=url, token=token)
        finally:
            await _ended(process)


def _litellm_config(behind: Contender, token: str) -> dict[str, object]:
    to = {"model": f"openai/{MODEL}", "api_base": f"{behind.url}/v1", "api_key": behind.token}
    return {
        "model_list": [{"model_name": MODEL, "litellm_params": to}],
        "general_settings": {"master_key": token},
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }


@asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[str]:
    """One of our own servers; gives its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "artangram_bench.gatewayserver", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STARTS_WITHIN_S):
            line = await process.stdout.readline()
        if not line:
            raise NotHere(f"{arguments[0]} did not start")
        yield line.decode().strip()
    finally:
        process.stdin.close()
        await _ended(process)


async def _answering(url: str, process: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as http:
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTS_WITHIN_S):
                while process.returncode is None:
                    with suppress(aiohttp.ClientError, OSError):
                        async with http.get(url) as response:
                            if response.status == 200:
                                return
                    await asyncio.sleep(_LOOK_S)
    raise NotHere(f"it did not answer within {STARTS_WITHIN_S:g} s")


async def _ended(process: asyncio.subprocess.Process) -> None:
    for end in (process.terminate, process.kill):
        with suppress(ProcessLookupError):
            end()
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await process.wait()
                return


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
