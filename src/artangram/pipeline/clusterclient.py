"""The cluster of a run: one of its own, or one that many runs share.

- A cluster of its own keeps its journal beside the run's checkpoints. After a crash the same
  cluster goes on: what was accepted ends once. Trajectories that the dead run left open are closed.
- A shared one is behind a URL. It may be started again while the run goes on (`reconnect`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

from msgspec import Struct

from artangram.managers.agentprocess import provider_options
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import Refused, Unreachable
from artangram.orchestrator.transport import Transport
from artangram.pipeline.meter import Meter, Metered, capacity_of
from artangram.pipeline.reconnect import PATIENCE_S, ReconnectingClient


class ClusterClient(Struct, frozen=True, kw_only=True):
    """A cluster, and what a run knows of it."""

    client: Client
    meter: Meter
    lost: "asyncio.Future[None] | None" = None
    """Raises when the cluster is gone for good; one of our own goes with us."""
    orchestrator: Orchestrator | None = None
    """Of a cluster of our own."""


@asynccontextmanager
async def own_cluster(
    state_dir: Path,
    *,
    job: str,
    policy: str = "elastic",
    cores: int | None = None,
    memory_mb: int | None = None,
    options: ClusterOptions | None = None,
    providers: Sequence[str] = ("strongest",),
) -> AsyncIterator[ClusterClient]:
    """A cluster that lives with this process; its journal and its agent outlive a crash."""
    async with running(
        policy=policy,
        cores=cores,
        memory_mb=memory_mb,
        state_dir=state_dir,
        options=options,
        agent_options=provider_options(providers),
    ) as (orchestrator, backends):
        meter = Meter(_now(), capacity_of(orchestrator.setup.cluster))
        backend = Metered(Embedded(orchestrator, backends=backends), meter)
        client = Client(cast(Transport, backend))
        await client.close_job(job)
        yield ClusterClient(client=client, meter=meter, orchestrator=orchestrator)


@asynccontextmanager
async def shared_cluster(
    url: str, *, token: str | None, job: str, resume: bool, patience_s: float = PATIENCE_S
) -> AsyncIterator[ClusterClient]:
    """The cluster at `url`. Jobs are told apart by their names: each run has its own."""
    async with connect(url, token=token) as behind:
        patient = ReconnectingClient(behind.backend, patience_s=patience_s)
        try:
            await behind.status()
            meter = Meter(_now(), {})
            client = Client(cast(Transport, Metered(cast(Transport, patient), meter)))
            if resume:
                await client.close_job(job)
            yield ClusterClient(client=client, meter=meter, lost=patient.lost)
            # What was given up while it opened may have been opened after it was closed. A cluster
            # that is away now closes it when it hears no more of us.
            with suppress(Unreachable, Refused):
                await behind.close_job(job)
        finally:
            await patient.aclose()


def _now() -> Callable[[], float]:
    return asyncio.get_running_loop().time
