"""What `up` serves beside its own interface: the wires of other frameworks' clients.

A front whose package is not installed is left out.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

from starlette.routing import Route

from artangram.integrations.e2b import e2b_pages
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.server import Pages


def fronts() -> list[Pages]:
    """All that can be served here."""
    found: list[Pages] = [e2b_pages]
    if find_spec("swerex") is not None:
        from artangram.integrations.swerexwire import swerex_pages

        found.append(swerex_pages)
    return found


def joined(*parts: Pages) -> Pages:
    """The routes of all parts, open for as long as the service is."""

    @asynccontextmanager
    async def pages(orchestrator: Orchestrator, token: str | None) -> AsyncIterator[list[Route]]:
        async with AsyncExitStack() as stack:
            each = [await stack.enter_async_context(part(orchestrator, token)) for part in parts]
            yield [route for routes in each for route in routes]

    return pages
