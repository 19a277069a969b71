"""What a training run can do, as its loops see it.

`sync`, `oneoff` and `asynchronous` put these verbs in order and know nothing else of a run, so the
same loop drives a real trainer (`training.Training`) and one that only takes time
(`simulated.run.SimulatedTraining`).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from artangram.core.rollout.trajectory import Batch


class RunVerbs(Protocol):
    """See the module."""

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
