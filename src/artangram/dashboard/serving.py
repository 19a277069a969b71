"""The dashboard of a run that has its own cluster, on an address of this machine.

Only pages are served, which change nothing: the cluster belongs to the run alone.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from artangram.aio import listening, served
from artangram.dashboard.routes import PATH, pages
from artangram.dashboard.run import RunFollower
from artangram.orchestrator.orchestrator import Orchestrator

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def run_pages(
    orchestrator: Orchestrator, run: RunFollower, *, token: str, port: int = 0
) -> AsyncIterator[str]:
    """Serve while the block lasts; gives a link that lets its reader in.

    Raises `BadInput` if the port is taken.
    """
    with listening(LOOPBACK, port) as ear:
        async with (
            pages(orchestrator, token, run) as routes,
            served(Starlette(routes=routes), ear) as url,
        ):
            yield f"{url}{PATH}?token={token}"
