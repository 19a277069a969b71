"""The order in which a run samples, learns, publishes and saves, by name (`LOOPS`).

The loops know only the verbs of `RunVerbs`, so the same loop drives a real trainer
(`training.Training`) and one that only takes time, in the simulated rollout of the benchmarks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from artangram.core.rollout.trajectory import Batch


class RunVerbs(Protocol):
    """What a training run can do, as its loop sees it."""

    @property
    def goes_on(self) -> bool:
        """Are there steps left to make?"""

    async def collect(self) -> Batch:
        """The next batch of the rollout, when it is complete."""

    async def learn(self, batch: Batch) -> object:
        """Make the next version from the batch."""

    async def announce(self) -> None:
        """Tell the rollout that there is a new version: staleness counts from it."""

    async def deliver(self) -> None:
        """Bring the announced version to the engines."""

    async def keep(self) -> None:
        """Write a checkpoint if it is time for one."""


Loop = Callable[[RunVerbs], Awaitable[None]]
"""Makes all steps of a run."""


async def synchronous(training: RunVerbs) -> None:
    """Sample, learn and publish, one after the other. Strictly on-policy.

    Nothing is sampled while the trainer computes, and nothing that was sampled before an update is
    trained on after it.
    """
    while training.goes_on:
        batch = await training.collect()
        await training.learn(batch)
        await training.announce()
        await training.deliver()
        await training.keep()


async def one_off(training: RunVerbs) -> None:
    """Learn from one batch while the next one is sampled.

    - Every trajectory of a batch is sampled by one version: the batch is complete before the next
      version is announced, and no trajectory of the batch after it has begun.
    - So the rollout's own bound is 0 (`core.weights.preset("one-off")`), and the trainer learns
      from samples that are exactly one version old.
    """
    batch = await training.collect()
    while training.goes_on:
        coming = asyncio.create_task(training.collect())
        try:
            await training.learn(batch)
            if training.goes_on:
                batch = await coming
        finally:
            coming.cancel()
        await training.announce()
        await training.deliver()
        # The batch in hand is not settled: a run that resumes here makes it again.
        await training.keep()


async def asynchronous(training: RunVerbs) -> None:
    """Sample without a pause; no token is older than the bound allows.

    - While the trainer computes, attempts go on with the weights that are live.
    - A version is announced before the next batch is asked for: what a batch may hold is judged by
      the version that will learn from it. Engines load it while that batch comes together.
    - The rollout guarantees the bound on staleness; the loss corrects the rest
      (`train.losses.correction_weights`).
    """
    delivering: asyncio.Task[None] | None = None
    try:
        while training.goes_on:
            batch = await training.collect()
            if delivering is not None:
                await delivering
                # The batch in hand is not settled: a run that resumes here makes it again.
                await training.keep()
            await training.learn(batch)
            await training.announce()
            delivering = asyncio.create_task(training.deliver())
        if delivering is not None:
            await delivering
            await training.keep()
    finally:
        if delivering is not None:
            delivering.cancel()


LOOPS: dict[str, Loop] = {
    "asynchronous": asynchronous,
    "areal": asynchronous,
    "one-off": one_off,
    "synchronous": synchronous,
}
