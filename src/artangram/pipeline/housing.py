"""The house of a run: one of its own, or one that many runs share.

- A house of its own keeps its journal beside the run's checkpoints. After a crash the same house
  goes on: what was accepted ends once. What the dead life of the run had open is closed.
- A shared one is behind a URL. It may be started again while the run goes on (`patient`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

from msgspec import Struct

from artangram.orchestrator.client import Backend, House
from artangram.orchestrator.connect import connect
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.records import Away, Refused
from artangram.orchestrator.workshop import Offers
from artangram.pipeline.meter import Meter, Metered, capacity_of
from artangram.pipeline.patient import PATIENCE_S, Patient


class Housed(Struct, frozen=True, kw_only=True):
    """A house, and what a run knows of it."""

    house: House
    meter: Meter
    lost: "asyncio.Future[None] | None" = None
    """Raises when the house is gone for good; one of our own goes with us."""


@asynccontextmanager
async def own_house(
    state_dir: Path,
    *,
    job: str,
    policy: str = "elastic",
    cores: int | None = None,
    memory_mb: int | None = None,
    offers: Offers | None = None,
) -> AsyncIterator[Housed]:
    """A house that lives with this process; its journal and its agent outlive a crash."""
    async with running(
        policy=policy, cores=cores, memory_mb=memory_mb, state_dir=state_dir, offers=offers
    ) as (orchestrator, workshop):
        meter = Meter(_now(), capacity_of(orchestrator.setup.cluster))
        backend = Metered(Embedded(orchestrator, workshop=workshop), meter)
        house = House(cast(Backend, backend))
        await house.close_job(job)
        yield Housed(house=house, meter=meter)


@asynccontextmanager
async def shared_house(
    url: str, *, token: str | None, job: str, resume: bool, patience_s: float = PATIENCE_S
) -> AsyncIterator[Housed]:
    """The house at `url`. Jobs are told apart by their names: each run has its own."""
    async with connect(url, token=token) as behind:
        patient = Patient(behind.backend, patience_s=patience_s)
        try:
            await behind.status()
            meter = Meter(_now(), {})
            house = House(cast(Backend, Metered(cast(Backend, patient), meter)))
            if resume:
                await house.close_job(job)
            yield Housed(house=house, meter=meter, lost=patient.lost)
            # What was given up while it opened may have been opened after it was closed. A house
            # that is away now closes it when it hears no more of us.
            with suppress(Away, Refused):
                await behind.close_job(job)
        finally:
            await patient.aclose()


def _now() -> Callable[[], float]:
    return asyncio.get_running_loop().time
