"""One batch behind: learn from the batch before while a whole new one is sampled.

- Every trajectory of a batch is sampled by one version: the batch is complete before the next
  version is announced, and nothing of the batch after it has begun.
- So the rollout's own bound is 0 (`core.weights.preset("one-off")`), and what is learned from is
  exactly one version old.
"""

import asyncio

from artangram.pipeline.protocol import RunVerbs


async def one_off(training: RunVerbs) -> None:
    """Make all steps of the run."""
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
