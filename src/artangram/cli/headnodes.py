"""Where the head of `artangram up` listens, and which machines beside its own become its nodes.

- `--agents`: agents that have the join token dial in.
- `--local N`: agents of this machine.
- `--ray`: agents on the nodes of a Ray cluster.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct, structs
from rich.console import Console

from artangram.aio import listening
from artangram.backends.ray.records import WatchSettings
from artangram.cli.client import host_and_port
from artangram.cli.localagents import LocalAgents, do_overlap, local_parts
from artangram.cli.rayagents import AGENTS_PORT, ray_agents
from artangram.core.errors import BadInput
from artangram.managers.machine import this_machine, total_memory_mb
from artangram.managers.roster import FENCE_S
from artangram.orchestrator.joinednodes import AgentAddress, AgentEndpoint
from artangram.orchestrator.tokens import kept_token

LOOPBACK = "127.0.0.1"


class NodeOptions(Struct, frozen=True, kw_only=True):
    """How other machines, or parts of this one, become nodes."""

    host: str | None
    agents: str | None
    local: int | None
    ray: WatchSettings | None


class HeadNode(Struct, frozen=True, kw_only=True):
    """What the head uses of this machine, and where callers and agents reach it."""

    cores: int | None
    memory_mb: int | None
    fence_s: float = FENCE_S
    host: str = LOOPBACK
    endpoint: AgentEndpoint | None = None
    on_ready: Callable[[str, str], None] = lambda url, token: None
    """Hears where callers reach it, and with which token."""


@contextmanager
def joinable(
    options: NodeOptions, head: HeadNode, state_dir: Path, console: Console
) -> Iterator[HeadNode]:
    """The head with a place where agents join; those it started end with the block."""
    if options.local is not None and options.ray is not None:
        raise BadInput("--local", "excludes --ray", "use one of them")
    head = structs.replace(head, host=options.host or LOOPBACK)
    if options.ray is not None:
        with _on_ray(options, options.ray, head, state_dir, console) as found:
            yield found
    elif options.local is not None:
        with _on_parts(options, options.local, head, state_dir, console) as found:
            yield found
    elif options.agents is not None:
        on_open = partial(_tell_agents, console, state_dir)
        yield structs.replace(head, endpoint=_endpoint(options.agents, head, state_dir, on_open))
    else:
        yield head


@contextmanager
def _on_ray(
    options: NodeOptions, settings: WatchSettings, head: HeadNode, state_dir: Path, console: Console
) -> Iterator[HeadNode]:
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    token = kept_token(state_dir, "join-token")
    with ray_agents(settings, state_dir=state_dir, join_token=token, say=say) as ray:
        agents = options.agents or _at(ray.host(options.host, "--agents"), AGENTS_PORT)
        yield structs.replace(
            head,
            cores=head.cores or ray.cores,
            host=ray.host(options.host, "--host"),
            endpoint=_endpoint(agents, head, state_dir, ray.on_open),
            on_ready=ray.on_ready,
        )


@contextmanager
def _on_parts(
    options: NodeOptions, count: int, head: HeadNode, state_dir: Path, console: Console
) -> Iterator[HeadNode]:
    machine = this_machine()
    kept, parts = local_parts(machine, count, head_cores=head.cores)
    if do_overlap(machine, kept, parts):
        told = f"This machine has {len(machine.cores)} cores for {count + 1} nodes: some share one."
        console.print(told, soft_wrap=True)
    token = kept_token(state_dir, "join-token")
    started = LocalAgents(parts, token=token, state_dir=state_dir, console=console)

    def on_open(address: AgentAddress) -> None:
        if options.agents is not None:
            _tell_agents(console, state_dir, address)
        started.start(address)

    try:
        yield structs.replace(
            head,
            cores=kept,
            # The total does not change, so a restart finds the head as it was.
            memory_mb=head.memory_mb or total_memory_mb() // (count + 1),
            endpoint=_endpoint(options.agents or f"{LOOPBACK}:0", head, state_dir, on_open),
        )
    finally:
        started.end()


def _endpoint(
    agents: str, head: HeadNode, state_dir: Path, on_open: Callable[[AgentAddress], None]
) -> AgentEndpoint:
    host, port = host_and_port("--agents", agents)
    if port:
        listening(host, port).close()
    return AgentEndpoint(
        host=host,
        port=port,
        token=kept_token(state_dir, "join-token"),
        state_dir=state_dir,
        on_open=on_open,
        fence_s=head.fence_s,
    )


def _tell_agents(console: Console, state_dir: Path, address: AgentAddress) -> None:
    """Print the command that joins another machine; its token is in a file."""
    console.print("To join another machine, copy the join token there and run:", soft_wrap=True)
    console.print(
        f"artangram agent --join {_at(address.host, address.port)} "
        f"--fingerprint {address.fingerprint} --token-file {state_dir / 'join-token'}",
        soft_wrap=True,
        markup=False,
    )


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
