"""`artangram apply`: a running service takes over what its cluster file says now."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from artangram.cli.client import Token, Url, answering, client, service_url
from artangram.cli.output import Printer
from artangram.config.clusterfile import blaming, read_cluster
from artangram.config.reconfigurable import reconfiguration_of
from artangram.orchestrator.reconfigure import Reconfiguration


def apply(
    cluster: Annotated[Path, typer.Argument(help="The cluster (YAML) that `up` was started with.")],
    policy: Annotated[
        str | None, typer.Option(help="Policy that `up` was started with, if not the file's.")
    ] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Change shares, limits, ceilings and quotas of a running service to those of its file.

    Everything else of the file has to be as it was when the service started; otherwise nothing
    changes, and the first line that differs is named.
    """
    described = read_cluster(cluster)
    wanted = reconfiguration_of(structs.replace(described, policy=policy or described.policy))
    with blaming(cluster):
        asyncio.run(_apply(service_url(url), token, wanted))
    jobs = {*(wanted.shares or ()), *(wanted.limits or ())}
    said = f"{len(jobs)} jobs, {len(wanted.apis)} APIs and {len(wanted.ceilings)} ceilings"
    Printer(None).console.print(f"Applied {cluster}: {said}.", soft_wrap=True, markup=False)


async def _apply(url: str, token: str | None, wanted: Reconfiguration) -> None:
    async with answering(url), client(url, token) as one:
        await one.backend.reconfigure(wanted)
