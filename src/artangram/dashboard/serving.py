"""The dashboard of a run, on an address of this machine.

Only pages are served, which change nothing.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from starlette.applications import Starlette

from artangram.aio import listening, served
from artangram.dashboard.remote import RemoteCluster
from artangram.dashboard.routes import PATH, pages, pages_beside
from artangram.dashboard.run import RunFollower
from artangram.orchestrator.orchestrator import Orchestrator

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def run_pages(
    orchestrator: Orchestrator, run: RunFollower, *, token: str, port: int = 0
) -> AsyncIterator[str]:
    """Serve the run and its own cluster while the block lasts; gives a link that lets readers in.

    Raises `BadInput` if the port is taken.
    """
    with listening(LOOPBACK, port) as listener:
        async with (
            pages(orchestrator, token, run) as routes,
            served(Starlette(routes=routes), listener) as url,
        ):
            yield f"{url}{PATH}?token={token}"


@asynccontextmanager
async def run_pages_beside(
    service: str, run: RunFollower, *, service_token: str | None, token: str, port: int = 0
) -> AsyncIterator[str]:
    """The same for a run that uses the service at the URL `service`."""
    headers = {} if service_token is None else {"Authorization": f"Bearer {service_token}"}
    with listening(LOOPBACK, port) as listener:
        async with aiohttp.ClientSession(headers=headers) as session:
            behind = RemoteCluster(session, service.rstrip("/") + PATH, run=run.run)
            routes = pages_beside(behind, token, run)
            async with served(Starlette(routes=routes), listener) as url:
                yield f"{url}{PATH}?token={token}"
