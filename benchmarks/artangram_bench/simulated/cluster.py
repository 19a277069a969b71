"""What a simulated run is made of, and the engines it asks for."""

from msgspec import Struct

from artangram.core.rollout.affinity import Auto, Declared
from artangram.core.rollout.costs import GUESS, Rates
from artangram.core.rollout.split import NEVER, Splits
from artangram.core.rollout.weights import Staleness
from artangram.gateway import Gateway
from artangram.gateway.engines.roofline import RooflineEngine
from artangram.gateway.gateway import EVERYWHERE
from artangram.gateway.hardware import ModelShape, Roofline, hardware
from artangram.pipeline.loops import Loop, asynchronous
from artangram.rollout import Spares
from artangram_bench.simulated.tasks import TaskShape
from artangram_bench.simulated.words import countdown


class PoolPlan(Struct, frozen=True, kw_only=True):
    """Devices of one kind that roll out."""

    hardware: str
    devices: int
    is_far: bool = False
    """In another cluster than the trainer: versions get there through the store."""


class WeightTimes(Struct, frozen=True, kw_only=True):
    """How long a version is on its way, beside everything else but for its load."""

    near_s: float = 0.0
    """From the trainer to a replica's host in its own cluster."""
    push_s: float = 0.0
    """From the trainer to the store of another cluster."""
    pull_s: float = 0.0
    """From that store to a replica's host."""
    load_s: float = 0.0
    """From its host into a replica, which stands still."""


class Scenario(Struct, frozen=True, kw_only=True):
    """One simulated run."""

    loop: Loop = asynchronous
    model: ModelShape
    pools: tuple[PoolPlan, ...]
    tasks: tuple[TaskShape, ...]
    in_step: bool = False
    """Environments wait for each other at every turn."""
    shares: dict[str, int] = {}
    """Groups of each task; without it all alike."""
    groups: int
    """In a batch."""
    group_size: int = 8
    environments: int | None = None
    """Without it one for each trajectory of a batch and its spares."""
    extra_groups: int = 0
    extra_siblings: int = 0
    spares: Spares = Spares()
    staleness: Staleness = Staleness()
    affinity: Declared | Auto = EVERYWHERE
    split: Splits = NEVER
    """Which tasks are read by one replica and answered by another."""
    knows_hardware: bool = True
    """Routing knows how fast each class is; else all replicas are alike to it."""
    hit_rate: float = 1.0
    """Of the tokens that a replica's prefix cache holds: what it holds is modelled."""
    train_s: float = 0.0
    """Of every step."""
    train_token_s: float = 0.0
    """Beside it, for every token of the batch."""
    weights: WeightTimes = WeightTimes()
    at_once: int = 1
    """Replicas that take a new version at the same time."""
    steps: int = 5
    warm_up: int = 1
    """Steps at the start that are not counted."""
    seed: int = 0

    @property
    def envs(self) -> int:
        if self.environments is not None:
            return self.environments
        return (self.groups + self.extra_groups) * (self.group_size + self.extra_siblings)


def engines(scenario: Scenario) -> list[tuple[RooflineEngine, str]]:
    """Every replica with its hardware class."""
    made = []
    for pool in scenario.pools:
        tp = scenario.model.tp
        replica = Roofline(hardware=hardware(pool.hardware), model=scenario.model, tp=tp)
        for number in range(pool.devices // tp):
            engine = RooflineEngine(
                countdown,
                replica,
                name=f"{pool.hardware}-{number}",
                hit_rate=scenario.hit_rate,
                load_s=scenario.weights.load_s,
            )
            made.append((engine, pool.hardware))
    return made


def a_gateway(scenario: Scenario) -> Gateway:
    """The gateway with its replicas; routing may know the roofline of each class."""
    made = engines(scenario)
    rates = {kind: _told(scenario, engine) for engine, kind in made}
    gateway = Gateway(affinity=scenario.affinity, split=scenario.split, rates=rates)
    for engine, kind in made:
        gateway.add(engine, hardware=kind)
    return gateway


def _told(scenario: Scenario, engine: RooflineEngine) -> Rates:
    """What routing knows of replicas like this one."""
    return engine.roofline.rates() if scenario.knows_hardware else GUESS
