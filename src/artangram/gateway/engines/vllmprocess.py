"""A vLLM server of our own: started, watched, and ended with everything it started.

vLLM has its own Python environment (`python`), because its packages conflict with others.
"""

import asyncio
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.gateway.engines.protocol import MOST_TOP_LOGPROBS, EngineGone
from artangram.gateway.engines.vllm import LEASE_S, VllmEngine
from artangram.services.started import ServerCommand, StartedServer, free_port, started

STARTS_WITHIN_S = 300.0
EXTENSION, RELOAD = "artangram_vllm.Extension", "reload_all"
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
    """By which servers exchange caches, such as `NixlConnector`; needs its own packages there."""
    structured_output: bool = False
    """Answers can be held to a JSON schema. The server then needs a tokenizer that transformers can
    load beside the model."""
    options: tuple[str, ...] = ()
    """More of vLLM's own."""
    environ: dict[str, str] = {}
    log: str = ""
    """The file that the server's output is appended to."""


class VllmProcess(VllmEngine):
    """See `protocol.Engine`. Made by `start`, ended by `aclose`."""

    _server: StartedServer
    _waiting: "asyncio.Task[None]"

    @property
    def pid(self) -> int:
        return self._server.pid

    @classmethod
    async def start(cls, settings: VllmSettings, *, name: str = "vllm") -> "VllmProcess":
        """Returns when the server answers. Raises `EngineGone` when it does not."""
        if not Path(settings.python).exists():  # noqa: ASYNC240 - one look
            raise BadInput("python", f"{settings.python} is missing", "install vLLM there first")
        try:
            server = await started(command(settings), names={})
        except InfraFailed as error:
            raise EngineGone(f"{name}: {error}") from error
        try:
            engine = await cls.connect(
                server.url,
                name=name,
                version=settings.version,
                directory=Path(settings.directory),
                reload=RELOAD,
                cache_kind=settings.kv_connector,
            )
        except BaseException:
            await uncancelled(server.end())
            raise
        assert isinstance(engine, cls)
        engine._server = server
        engine.lacks = () if settings.structured_output else ("json_schema",)
        engine._waiting = asyncio.create_task(engine._wait())
        return engine

    async def aclose(self) -> None:
        await super().aclose()
        await self._server.end()
        await asyncio.wait({self._waiting})

    async def _wait(self) -> None:
        self.crash(await asyncio.shield(self._server.ended))


def command(settings: VllmSettings) -> ServerCommand:
    """What starts the server."""
    argv = (
        settings.python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *("--model", settings.directory),
        *("--host", "127.0.0.1"),
        *("--port", "{port}"),
        *("--max-model-len", str(settings.max_context)),
        *("--dtype", settings.dtype),
        *("--logprobs-mode", "processed_logprobs"),
        *("--worker-extension-cls", EXTENSION),
        # Tokens in and out; without it the server refuses.
        "--enable-scale-out",
        # Ours is made of tokens; words are the gateway's affair.
        *(() if settings.structured_output else ("--skip-tokenizer-init",)),
        # One more than callers may ask for: the sampled token takes a place.
        *("--max-logprobs", str(MOST_TOP_LOGPROBS + 1)),
        "--disable-uvicorn-access-log",
        # Answers say how much of the prompt was in the prefix cache.
        "--enable-prompt-tokens-details",
        *_connected(settings),
        *settings.options,
    )
    environ = {
        "PYTHONPATH": str(_INSIDE),
        # Pause, resume, versions and weights are behind this.
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        # Servers of one machine must not share it; others are reached at this one's address.
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        **settings.environ,
    }
    return ServerCommand(
        argv=argv, environ=environ, starts_within_s=STARTS_WITHIN_S, log=settings.log
    )


def _connected(settings: VllmSettings) -> list[str]:
    if not settings.kv_connector:
        return []
    transfer = {
        "kv_connector": settings.kv_connector,
        "kv_role": "kv_both",
        # What cannot be fetched is read anew; else the request would fail.
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
    }
    return ["--kv-transfer-config", msgspec.json.encode(transfer).decode()]
