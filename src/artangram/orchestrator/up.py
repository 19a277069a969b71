"""A service from its first line to its last: `artangram up` without the command line."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from artangram.core.scheduling.cluster import JobLimits
from artangram.managers.machine import allow_open_files
from artangram.observe.retention import Retention
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.garbage import old_objects_aside
from artangram.orchestrator.joinednodes import AgentEndpoint
from artangram.orchestrator.local import running
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.server import Pages, serving
from artangram.orchestrator.stopping import DRAIN_S, until_told_to_stop
from artangram.orchestrator.tokens import kept_token
from artangram.sandbox.network import NetworkPolicy


async def up(
    state_dir: Path,
    *,
    on_ready: Callable[[str], None],
    host: str = "127.0.0.1",
    port: int = 7410,
    token: str | None = None,
    policy: str = "elastic",
    cores: int | None = None,
    memory_mb: int | None = None,
    bounds: Bounds | None = None,
    shares: Mapping[str, float] | None = None,
    limits: Mapping[str, JobLimits] | None = None,
    labels: Mapping[str, str] | None = None,
    options: ClusterOptions | None = None,
    images: Sequence[Path] = (),
    network: NetworkPolicy | None = None,
    drain_s: float = DRAIN_S,
    agent_options: tuple[str, ...] = (),
    endpoint: AgentEndpoint | None = None,
    sync: bool = True,
    keep: Retention | None = None,
    pages: Pages | None = None,
    tell: Callable[[str], None] = lambda text: None,
    described: Mapping[str, str] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` hears the address. `described`: what stays."""
    allow_open_files()
    if token is None:
        token = await asyncio.to_thread(kept_token, state_dir)
    async with (
        old_objects_aside(),
        running(
            policy=policy,
            cores=cores,
            memory_mb=memory_mb,
            state_dir=state_dir,
            bounds=bounds,
            shares=shares,
            limits=limits,
            labels=labels,
            options=structs.replace(options or ClusterOptions(), takes_objects=False),
            agent_options=agent_options,
            endpoint=endpoint,
            sync=sync,
            keep=keep,
        ) as (orchestrator, _),
        serving(
            orchestrator,
            host=host,
            port=port,
            token=token,
            images=images,
            network=network,
            pages=pages,
        ) as url,
    ):
        orchestrator.described = None if described is None else dict(described)
        ready = partial(on_ready, url)
        await until_told_to_stop(orchestrator, drain_s=drain_s, on_ready=ready, tell=tell)
