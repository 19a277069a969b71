"""Tells a rollout how long the cluster's line is, so that it opens none into a long one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from artangram.orchestrator.client import Client
from artangram.orchestrator.records import Draining, Refused, Unreachable

OnLine = Callable[[float, int], None]
"""Gets how long a trajectory would wait, and how many of the job have no node."""

LOOK_S = 1.0
"""Between two questions. A line that others make is told by no event of ours."""


@asynccontextmanager
async def watched_line(client: Client, job: str, on_line: OnLine) -> AsyncIterator[None]:
    """Ask for as long as the run goes on; what `on_line` gets is of `job`."""
    watching = asyncio.create_task(_watch(client, job, on_line))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _watch(client: Client, job: str, on_line: OnLine) -> None:
    while True:
        # While the cluster is away nothing is known of its line, and what is under way waits.
        with suppress(Unreachable, Refused, Draining):
            found = await client.expected_wait(job)
            on_line(max(found.memory_s, found.cores_s), found.num_trajectories)
        await asyncio.sleep(LOOK_S)
