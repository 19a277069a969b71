"""What the families share: seeded draws, common needs, and the bounds of their parameters."""

import math
from functools import lru_cache
from random import Random
from typing import Annotated

from msgspec import Meta

from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.action import MOST_WORK_S
from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.speedup import MOST_UNITS, Amdahl

Count = Annotated[int, Meta(ge=1, le=1 << 30)]
Units = Annotated[int, Meta(ge=1, le=MOST_UNITS)]
Size = Annotated[int, Meta(ge=0, le=10**12)]
Seconds = Annotated[float, Meta(ge=0, le=MOST_WORK_S)]
Spread = Annotated[float, Meta(ge=0, le=10)]
"""How uneven something is; 0 if not at all."""
Positive = Annotated[float, Meta(ge=1e-3, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=0, lt=1)]
"""A share of its speed that something loses, and never all of it."""

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Worker counts an elastic command offers: close together where one more worker matters most."""

SHORTEST_S = 0.001
"""Nothing outside the program takes less than a millisecond."""

CPU = Resource("cpu")
GPU = Resource("gpu")
ONE_CORE = Needs(amounts=((CPU, (1,)),))


def stream(*parts: object) -> Random:
    """A generator for one piece of a trace, independent of every other piece."""
    return Random("/".join(map(str, parts)))


def lognormal(rng: Random, median: float, *, sigma: float, most: float = MOST_WORK_S) -> float:
    """A long-tailed amount around `median`, never above `most`, to a tenth of a millisecond."""
    drawn = min(rng.lognormvariate(math.log(median), sigma), most) if median > 0 else 0.0
    return round(drawn, 4)


def duration(rng: Random, median: float, *, sigma: float, most: float = MOST_WORK_S) -> float:
    """How long something outside takes."""
    return max(SHORTEST_S, lognormal(rng, median, sigma=sigma, most=most))


def fails_at(rng: Random, share: float, *, work_s: float) -> float | None:
    """When the action fails, if it is one of the `share` that do."""
    if share and rng.random() < share:
        return round(rng.uniform(0, work_s), 4)
    return None


@lru_cache(maxsize=1024)
def elastic_cores(most: int, serial: float) -> Needs:
    """Between one core and `most`, of which a `serial` share of the work profits nothing."""
    widths = tuple(width for width in WIDTHS if width < most)
    return Needs(amounts=((CPU, (*widths, most)),), elastic=CPU, speedup=Amdahl(serial))


@lru_cache(maxsize=1024)
def service_call(service: str, degrees: tuple[int, ...], serial: float) -> Needs:
    """A call to a model service at any of its degrees."""
    return Needs(
        amounts=((GPU, degrees),),
        elastic=GPU,
        speedup=Amdahl(serial),
        service=ServiceId(service),
    )
