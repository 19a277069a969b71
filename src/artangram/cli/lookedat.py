"""The dashboard of a run, while it goes: for `train` and `demo`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from artangram.pipeline.clusterclient import ClusterClient
    from artangram.pipeline.settings import RunSettings

Dashboard = Annotated[
    int,
    typer.Option(
        help="Port of the run's dashboard on this machine; 0 takes a free one, -1 serves none.",
        min=-1,
        max=65535,
    ),
]
NOT_SERVED = -1


@asynccontextmanager
async def looked_at(
    opened: "ClusterClient", run: "RunSettings", place: Path, console: Console, *, port: int
) -> AsyncIterator[None]:
    """Serve the run's dashboard while the block lasts, and print the link to it.

    A cluster behind a URL has a dashboard of its own, so this serves none.
    """
    if opened.orchestrator is None or port == NOT_SERVED:
        yield
        return
    from artangram.dashboard.run import RunFollower
    from artangram.dashboard.serving import run_pages
    from artangram.orchestrator.tokens import kept_token

    follower = RunFollower(place, run=run.name, planned=run.steps)
    token = kept_token(place)
    async with run_pages(opened.orchestrator, follower, token=token, port=port) as link:
        console.print(f"Dashboard: {link}", soft_wrap=True)
        yield
