"""The asynchronous run: sampling never stops, and no token is older than the bound allows.

- While the trainer computes, attempts go on with the weights that are live.
- A version is announced before the next batch is asked for: what a batch may hold is judged by the
  version that will learn from it. It is on its way to the engines while that batch comes together.
- The rollout pays with staleness, of which it guarantees the bound; the loss corrects the rest
  (`train.losses.truncated_weights`).
"""

import asyncio

from artangram.pipeline.protocol import RunVerbs


async def asynchronous(training: RunVerbs) -> None:
    """Make all steps of the run."""
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
