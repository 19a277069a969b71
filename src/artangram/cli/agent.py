"""`artangram agent`: this machine as a node of a cluster, for as long as it runs."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from artangram.backends.agentlock import alone, cluster_of
from artangram.cli.client import host_and_port
from artangram.core.errors import BadInput
from artangram.core.ids import NodeId
from artangram.link import LinkEnded, LinkRefused
from artangram.managers.agentprocess import PROVIDERS, providers_named
from artangram.managers.joining import JoiningAgent, JoinTarget, MachineIdentity
from artangram.managers.local import LEAST_FREE_MB, WARM, LocalAgent
from artangram.managers.machine import allow_open_files, this_machine
from artangram.managers.tls import checked_fingerprint
from artangram.managers.wire import NodeShape
from artangram.sandbox import IsolationLevel, NotCapable


def agent(
    join: Annotated[
        list[str],
        typer.Option(
            help="HOST:PORT where `artangram up --agents` listens. Repeat it for each machine "
            "that the orchestrator may move to."
        ),
    ],
    fingerprint: Annotated[
        str | None,
        typer.Option(
            envvar="ARTANGRAM_FINGERPRINT",
            help="Of the orchestrator's certificate, as `up` prints it: sha256:...",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Holds the join token; or set ARTANGRAM_JOIN_TOKEN."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Name of this node in the cluster. [default: host name]")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE that selectors ask for. Repeat it.")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(help="Most cores to offer (default: all).", min=1)
    ] = None,
    memory_mb: Annotated[int | None, typer.Option(help="Offer at most so much.", min=1)] = None,
    function_slots: Annotated[
        int, typer.Option(help="Function workers at most; their modules have to be here.", min=0)
    ] = 0,
    patience_s: Annotated[
        float | None,
        typer.Option(help="Leave when the orchestrator is away for so long.", min=1),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(help=f"Sandboxes: {', '.join(PROVIDERS)}. Repeat it for several."),
    ] = None,
) -> None:
    """Join this machine to a cluster, and stay until SIGTERM, Ctrl-C or `artangram drain`.

    The agent dials the orchestrator, so this machine needs no open port. When it cannot reach the
    orchestrator for longer than the cluster's fence, it ends everything it runs and joins anew.
    """
    name = NodeId(node or socket.gethostname())
    pin = None if fingerprint is None else checked_fingerprint(fingerprint)
    addresses = tuple(_address(one, is_pinned=pin is not None) for one in join)
    target = JoinTarget(addresses=addresses, token=_token(token_file), fingerprint=pin)
    shape = replace(_shape(cores, memory_mb, label or []), function_slots=function_slots)
    allow_open_files()
    with alone(name, target.token):
        identity = MachineIdentity(node=name, machine=_machine(), shape=shape)
        asyncio.run(_stay(target, identity, provider or ["strongest"], patience_s=patience_s))


async def _stay(
    target: JoinTarget, identity: MachineIdentity, providers: list[str], *, patience_s: float | None
) -> None:
    async def new_agent() -> LocalAgent:
        opened = await providers_named(
            providers,
            lowest=IsolationLevel.NAMESPACES,
            keep_for=f"{identity.node} of {cluster_of(target.token)}",
        )
        return LocalAgent(
            identity.node,
            *opened,
            now=time.monotonic,
            warm=WARM,
            least_free_mb=LEAST_FREE_MB,
            function_slots=identity.shape.function_slots,
        )

    def on_joined(at: tuple[str, int]) -> None:
        print(f"{identity.node} joined {at[0]}:{at[1]}", flush=True)

    joining = JoiningAgent(target, identity, new_agent, patience_s=patience_s, on_joined=on_joined)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, joining.stop)
    try:
        await joining.run()
        if joining.is_dismissed:
            print(f"{identity.node} was drained and has left the cluster", flush=True)
    except LinkRefused as error:
        raise BadInput("--join", f"the orchestrator refused this agent: {error}", "") from None
    except LinkEnded as error:
        raise BadInput("--join", str(error), "start it with `artangram up`") from None
    except NotCapable as error:
        raise BadInput("--provider", str(error), "see `artangram doctor`") from None


def _address(text: str, *, is_pinned: bool) -> tuple[str, int]:
    host, port = host_and_port("--join", text)
    if not is_pinned and host not in ("127.0.0.1", "::1", "localhost"):
        fix = "copy it from what `artangram up` prints"
        raise BadInput("--fingerprint", f"is needed to reach {host} safely", fix)
    return host, port


def _token(file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text().strip()
        except OSError as error:
            raise BadInput("--token-file", f"{file}: {error.strerror}", "name a file") from None
    token = os.environ.get("ARTANGRAM_JOIN_TOKEN", "")
    if not token:
        fix = "give --token-file, or set ARTANGRAM_JOIN_TOKEN; `artangram up` prints it"
        raise BadInput("--token-file", "there is no join token", fix)
    return token


def _shape(cores: int | None, memory_mb: int | None, labels: list[str]) -> NodeShape:
    machine = this_machine()
    spec = machine.spec(cores=cores, memory_mb=memory_mb)
    named = {}
    for label in labels:
        key, sign, value = label.partition("=")
        if not key or not sign:
            raise BadInput("--label", f"{label!r} is not KEY=VALUE", "write it as zone=a")
        named[key] = value
    return NodeShape(
        cores=machine.cores[: spec.cores],
        numa=spec.numa,
        memory_mb=spec.memory_mb,
        labels=named,
    )


def _machine() -> str:
    """The same after a restart of the agent, another one on every machine and after every boot."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}"
