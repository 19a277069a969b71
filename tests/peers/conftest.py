"""A service for clients of other frameworks, and the frameworks' own tests where they ship them.

`make test-peers` runs these in an environment of their own (tests/install_peers.sh); elsewhere,
each file says which package it misses and is skipped.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio

import artangram
from artangram.integrations.fronts import joined
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.server import Pages, serving

TOKEN = "a-token-of-the-tests"
CORES, MEMORY_MB = 2, 6000


@asynccontextmanager
async def service(*parts: Pages) -> AsyncIterator[str]:
    """A service with the routes of these adapters; gives its address."""
    async with (
        running(cores=CORES, memory_mb=MEMORY_MB) as (orchestrator, _),
        serving(orchestrator, token=TOKEN, pages=joined(*parts)) as url,
    ):
        yield url


@pytest_asyncio.fixture(params=["embedded", "http"], scope="module", loop_scope="module")
async def cluster(request) -> AsyncIterator[Client]:
    """A client of a cluster in this process, and one over HTTP."""
    async with running(cores=CORES, memory_mb=MEMORY_MB) as (orchestrator, _):
        if request.param == "embedded":
            yield Client(Embedded(orchestrator))
            return
        async with (
            serving(orchestrator, token=TOKEN) as url,
            artangram.connect(url, token=TOKEN) as client,
        ):
            yield client
