"""A cluster that other frameworks run their sandboxes on.

`make test-peers` runs these in an environment of their own (tests/install_peers.sh); elsewhere,
each file says which package it misses and is skipped.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

import artangram
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.server import serving

TOKEN = "a-token-of-the-tests"
CORES, MEMORY_MB = 2, 6000


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
