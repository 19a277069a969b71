"""The dashboard of a run, while it goes: for `train` and `demo`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

if TYPE_CHECKING:
    from artangram.pipeline.clusterclient import ClusterClient
    from artangram.pipeline.settings import RunSettings

DashboardPort = Annotated[
    int,
    typer.Option(
        "--dashboard",
        help="Port of the run's dashboard on this machine; 0 takes a free one.",
        min=0,
        max=65535,
    ),
]
NoDashboard = Annotated[bool, typer.Option("--no-dashboard", help="Serve no dashboard.")]


class RunDashboard(NamedTuple):
    """Where a run serves its dashboard, and which service it uses, if it has no own cluster."""

    port: int = 0
    url: str | None = None
    token: str | None = None


@asynccontextmanager
async def looked_at(
    opened: "ClusterClient",
    run: "RunSettings",
    place: Path,
    console: Console,
    *,
    wanted: RunDashboard | None,
) -> AsyncIterator[None]:
    """Serve the run's dashboard while the block lasts, and print the link to it; none unasked."""
    if wanted is None:
        yield
        return
    from artangram.dashboard.run import RunFollower
    from artangram.dashboard.serving import run_pages, run_pages_beside
    from artangram.orchestrator.tokens import kept_token

    follower = RunFollower(place, run=run.name, planned=run.steps)
    token = kept_token(place)
    if opened.orchestrator is not None:
        serving = run_pages(opened.orchestrator, follower, token=token, port=wanted.port)
    else:
        assert wanted.url is not None
        serving = run_pages_beside(
            wanted.url, follower, service_token=wanted.token, token=token, port=wanted.port
        )
    async with serving as link:
        console.print(f"Dashboard: {link}", soft_wrap=True)
        yield
