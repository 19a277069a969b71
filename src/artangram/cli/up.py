"""`artangram up`: the orchestrator of this machine as a service."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, structs

from artangram.aio import listening
from artangram.cli.client import host_and_port, plainly_refused
from artangram.cli.localagents import LocalAgents, do_overlap, local_parts
from artangram.cli.output import Printer, tell_ignored, writing
from artangram.config.cluster import ClusterFile
from artangram.config.clusterfile import blaming, read_cluster
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.managers.machine import this_machine, total_memory_mb
from artangram.orchestrator.joinednodes import AgentAddress, AgentDoor
from artangram.orchestrator.tokens import checked_token, kept_token
from artangram.orchestrator.up import up as serve

STATE_DIR = Path.home() / ".artangram"


class Serves(Struct, frozen=True, kw_only=True):
    """What `--json` writes; the token is in the file `token` of the state directory."""

    url: str
    policy: str
    state_dir: str


class _Head(Struct, frozen=True, kw_only=True):
    """What the head uses of this machine, and where agents join it."""

    cores: int | None
    memory_mb: int | None
    door: AgentDoor | None = None


_Agents = Annotated[
    str | None, typer.Option(help="HOST:PORT where other machines join with `artangram agent`.")
]
_Cores = Annotated[
    int | None, typer.Option(help="Use at most this many cores of this machine.", min=1)
]
_StateDir = Annotated[
    Path,
    typer.Option(help="Directory of the journal and the token; a restart continues from it."),
]
_Local = Annotated[
    int | None,
    typer.Option(help="Try a cluster: share this machine among this many agents.", min=1, max=64),
]
_Token = Annotated[
    str | None,
    typer.Option(
        envvar="ARTANGRAM_TOKEN", help="Token that callers must send. Default: a new one."
    ),
]


def up(
    cluster: Annotated[
        Path | None,
        typer.Argument(help="The cluster (YAML): cores, functions, services, APIs, shares."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 7410,
    state_dir: _StateDir = STATE_DIR,
    policy: Annotated[str | None, typer.Option(help="Policy, as for `simulate`.")] = None,
    cores: _Cores = None,
    agents: _Agents = None,
    local: _Local = None,
    token: _Token = None,
    json: Annotated[
        str | None, typer.Option(help="Write the address as JSON to this file when it serves.")
    ] = None,
) -> None:
    """Serve this machine's cluster over HTTP until SIGTERM or Ctrl-C, then drain.

    Without a file it serves all cores. The file may limit them and add functions, services and
    APIs. Nothing accepted is lost by a crash: start it again with the same state directory.
    """
    described = _described(cluster, policy)
    _check_free(host, port)
    secret, output = _secret(token, state_dir), Printer(json)
    if cluster is not None:
        tell_ignored(output.console, cluster, described.ignored_live(), verb="up")
    given = _Head(cores=cores or described.cores, memory_mb=described.memory_mb)
    with (
        output.progress() as opening,
        _refused(state_dir),
        blaming(cluster),
        _joinable(agents, local, given, state_dir, output) as head,
    ):
        opening.add_task("opening the cluster")

        def on_ready(url: str) -> None:
            opening.stop()
            shown = None if token else secret
            _tell(output, url, policy=described.policy, state_dir=state_dir, made_up=shown)

        serving = serve(
            state_dir,
            on_ready=on_ready,
            host=host,
            port=port,
            token=secret,
            policy=described.policy,
            cores=head.cores,
            memory_mb=head.memory_mb,
            shares=described.shares,
            limits=described.limits,
            labels=described.labels,
            options=described.options,
            images=[Path(folder) for folder in described.images],
            door=head.door,
            sync=described.sync,
            tell=partial(output.console.print, soft_wrap=True),
        )
        asyncio.run(serving)


def _check_free(host: str, port: int) -> None:
    """Complain about a taken port before the cluster is opened, which takes a while."""
    if port:
        listening(host, port).close()


def _secret(token: str | None, state_dir: Path) -> str:
    with writing(state_dir, what="directory"):
        return checked_token(token or kept_token(state_dir))


def _described(cluster: Path | None, policy: str | None) -> ClusterFile:
    """The cluster of the file, or this machine, under `policy`. Raises `BadInput`."""
    described = ClusterFile() if cluster is None else read_cluster(cluster)
    with blaming(None if policy else cluster):
        policy_named(policy or described.policy)
    with blaming(cluster):
        described.options  # noqa: B018 - asked for its complaints.
    return structs.replace(described, policy=policy or described.policy)


@contextmanager
def _joinable(
    agents: str | None, local: int | None, head: _Head, state_dir: Path, output: Printer
) -> Iterator[_Head]:
    """The head with a place where agents join; those of `local` do, and end with the block."""
    if agents is None and local is None:
        yield head
        return
    host, port = host_and_port("--agents", agents or "127.0.0.1:0")
    _check_free(host, port)
    door = AgentDoor(
        host=host,
        port=port,
        token=kept_token(state_dir, "join-token"),
        state_dir=state_dir,
        on_open=partial(_tell_agents, output, state_dir),
    )
    if local is None:
        yield structs.replace(head, door=door)
        return
    machine = this_machine()
    kept, parts = local_parts(machine, local, head_cores=head.cores)
    if do_overlap(machine, kept, parts):
        told = f"This machine has {len(machine.cores)} cores for {local + 1} nodes: some share one."
        output.console.print(told, soft_wrap=True)
    started = LocalAgents(parts, token=door.token, state_dir=state_dir, console=output.console)

    def on_open(address: AgentAddress) -> None:
        if agents is not None:
            _tell_agents(output, state_dir, address)
        started.start(address)

    # The total does not change, so a restart finds the head as it was.
    memory_mb = head.memory_mb or total_memory_mb() // (local + 1)
    try:
        yield _Head(cores=kept, memory_mb=memory_mb, door=structs.replace(door, on_open=on_open))
    finally:
        started.end()


def _tell_agents(output: Printer, state_dir: Path, address: AgentAddress) -> None:
    """Print the command that joins another machine; its token is in a file."""
    console = output.console
    at = f"[{address.host}]" if ":" in address.host else address.host
    console.print("To join another machine, copy the join token there and run:", soft_wrap=True)
    console.print(
        f"artangram agent --join {at}:{address.port} --fingerprint {address.fingerprint} "
        f"--token-file {state_dir / 'join-token'}",
        soft_wrap=True,
        markup=False,
    )


@contextmanager
def _refused(state_dir: Path) -> Iterator[None]:
    """Says in one line what keeps it from serving."""
    with plainly_refused(), writing(state_dir, what="directory"):
        yield


def _tell(output: Printer, url: str, *, policy: str, state_dir: Path, made_up: str | None) -> None:
    """Print where it serves, for people and programs; the token only if it was made up here."""
    console = output.console
    output.json(Serves(url=url, policy=policy, state_dir=str(state_dir.resolve())))
    console.print(f"Serving {url} with policy {policy}; state in {state_dir}", soft_wrap=True)
    console.print(f"export ARTANGRAM_URL={url}", soft_wrap=True)
    if made_up is not None:
        console.print(f"export ARTANGRAM_TOKEN={made_up}", soft_wrap=True)
    console.file.flush()  # A caller that started us in the background reads this from a file.
