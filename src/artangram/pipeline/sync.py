"""The synchronous run: sample, learn, publish, one after the other. Strictly on-policy.

Nothing is sampled while the trainer computes, and nothing that was sampled before an update is
trained on after it.
"""

from artangram.pipeline.protocol import RunVerbs


async def synchronous(training: RunVerbs) -> None:
    """Make all steps of the run."""
    while training.goes_on:
        batch = await training.collect()
        await training.learn(batch)
        await training.announce()
        await training.deliver()
        await training.keep()
