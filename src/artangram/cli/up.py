"""`artangram up`: the orchestrator of this machine as a service."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, structs

from artangram.aio import listening
from artangram.cli.client import plainly_refused
from artangram.cli.headnodes import LOOPBACK, HeadNode, NodeOptions, joinable
from artangram.cli.output import Printer, tell_ignored, writing
from artangram.cli.rayagents import watch_settings
from artangram.cli.upmodel import EnginesOption, ModelOption, ModelOptions, ModelPort
from artangram.config.cluster import ClusterFile
from artangram.config.clusterfile import blaming, read_cluster
from artangram.config.providers import providers_of
from artangram.config.reconfigurable import fixed_of
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.dashboard import pages
from artangram.integrations.fronts import fronts, joined
from artangram.managers.agentprocess import provider_options
from artangram.orchestrator.providing import provider_labels
from artangram.orchestrator.tokens import checked_token, kept_token
from artangram.orchestrator.up import up as serve

STATE_DIR = Path.home() / ".artangram"


class Serves(Struct, frozen=True, kw_only=True):
    """What `--json` writes; the token is in the file `token` of the state directory."""

    url: str
    policy: str
    state_dir: str
    model_url: str = ""
    """Of the model's interfaces, if one is served."""


_Agents = Annotated[
    str | None, typer.Option(help="HOST:PORT where other machines join with `artangram agent`.")
]
_Json = Annotated[
    str | None, typer.Option(help="Write the address as JSON to this file when it serves.")
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
_Ray = Annotated[
    str | None,
    typer.Option(help="Run agents on the nodes of Ray: auto, HOST:PORT or ray://HOST:PORT."),
]
_RayCpus = Annotated[
    int | None, typer.Option(help="CPUs to claim on each Ray node. Default: all.", min=1)
]
_RayGpuNodes = Annotated[
    bool, typer.Option("--ray-gpu-nodes", help="Use the CPUs of Ray nodes with GPUs, too.")
]
_RayGpus = Annotated[
    bool,
    typer.Option("--ray-gpus", help="Claim the GPUs of Ray's nodes, too, with their CPUs."),
]
_RayGroup = Annotated[
    str | None,
    typer.Option(help="Claim only the bundles of this placement group of Ray: its id or name."),
]
_Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on. [default: 127.0.0.1; its own in Ray with --ray]"),
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
    host: _Host = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 7410,
    state_dir: _StateDir = STATE_DIR,
    policy: Annotated[str | None, typer.Option(help="Policy, as for `simulate`.")] = None,
    cores: _Cores = None,
    agents: _Agents = None,
    local: _Local = None,
    ray: _Ray = None,
    ray_cpus: _RayCpus = None,
    ray_gpu_nodes: _RayGpuNodes = False,
    ray_gpus: _RayGpus = False,
    ray_placement_group: _RayGroup = None,
    model: ModelOption = None,
    engines: EnginesOption = "1",
    model_port: ModelPort = 7412,
    token: _Token = None,
    json: _Json = None,
) -> None:
    """Serve this machine's cluster over HTTP until SIGTERM or Ctrl-C, then drain.

    Without a file it serves all cores. The file may limit them and add functions, services and
    APIs. Nothing accepted is lost by a crash: start it again with the same state directory.
    """
    described = _described(cluster, policy)
    if ray is None:
        _check_free(host or LOOPBACK, port)
    secret, output = _secret(token, state_dir), Printer(json)
    if cluster is not None:
        tell_ignored(output.console, cluster, described.ignored_live(), verb="up")
    watched = watch_settings(
        ray,
        cpus=ray_cpus,
        with_gpu_nodes=ray_gpu_nodes,
        with_gpus=ray_gpus,
        placement_group=ray_placement_group,
        state_dir=state_dir,
    )
    served = ModelOptions(model=model, engines=engines, port=model_port)
    options = NodeOptions(host=host, agents=agents, local=local, ray=watched)
    given = _head_node(described, cores)
    with (
        output.progress() as opening,
        _refused(state_dir),
        blaming(cluster),
        joinable(options, given, state_dir, output.console) as head,
    ):
        opening.add_task("opening the cluster")

        def on_ready(serves: Serves) -> None:
            opening.stop()
            _tell(output, serves, made_up=None if token else secret)
            head.on_ready(serves.url, secret)

        asyncio.run(_run(described, head, state_dir, port, secret, on_ready, output, served))


async def _run(
    described: ClusterFile,
    head: HeadNode,
    state_dir: Path,
    port: int,
    secret: str,
    on_ready: Callable[[Serves], None],
    output: Printer,
    served: ModelOptions,
) -> None:
    async with served.served(token=secret, host=head.host, state_dir=state_dir) as model_url:

        def tell(url: str) -> None:
            place = str(state_dir.resolve())
            on_ready(Serves(url=url, policy=described.policy, state_dir=place, model_url=model_url))

        await _served(described, head, state_dir, port, secret, tell, output)


def _head_node(described: ClusterFile, cores: int | None) -> HeadNode:
    return HeadNode(
        cores=cores or described.cores,
        memory_mb=described.memory_mb,
        fence_s=described.fence_s,
    )


def _served(
    described: ClusterFile,
    head: HeadNode,
    state_dir: Path,
    port: int,
    secret: str,
    on_ready: Callable[[str], None],
    output: Printer,
) -> Coroutine[None, None, None]:
    _check_free(head.host, port)
    names = providers_of(described.provider)
    return serve(
        state_dir,
        on_ready=on_ready,
        host=head.host,
        port=port,
        token=secret,
        policy=described.policy,
        cores=head.cores,
        memory_mb=head.memory_mb,
        shares=described.shares,
        limits=described.limits,
        labels=dict(described.labels) | provider_labels(names),
        options=described.options,
        images=[Path(folder) for folder in described.images],
        network=described.network,
        agent_options=provider_options(names),
        endpoint=head.endpoint,
        sync=described.sync,
        keep=described.keep,
        pages=joined(pages, *fronts()),
        tell=partial(output.console.print, soft_wrap=True),
        described=fixed_of(described),
    )


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
def _refused(state_dir: Path) -> Iterator[None]:
    """Says in one line what keeps it from serving."""
    with plainly_refused(), writing(state_dir, what="directory"):
        yield


def _tell(output: Printer, serves: Serves, *, made_up: str | None) -> None:
    """Print where it serves, for people and programs; the token only if it was made up here."""
    say = partial(output.console.print, soft_wrap=True)
    url = serves.url
    output.json(serves)
    say(f"Serving {url} with policy {serves.policy}; state in {serves.state_dir}")
    say(f"export ARTANGRAM_URL={url}")
    if made_up is not None:
        say(f"export ARTANGRAM_TOKEN={made_up}")
    if serves.model_url:
        say(f"export ARTANGRAM_MODEL_URL={serves.model_url}")
    say(f"Dashboard: {url}/dashboard (it asks for the token)")
    output.console.file.flush()  # A caller that started us in the background reads it from a file.
