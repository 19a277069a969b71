"""The systems that ROLLART is compared with, each as a setting of the same rollout.

None is a mode inside the rollout: a system is a loop, a bound, whether environments wait for each
other, how weights travel, and how requests find hardware. The page about this simulation has the
table of their features.
"""

from msgspec import Struct, structs

from artangram.core.rollout.affinity import Auto, Declared, affinity_of
from artangram.core.rollout.weights import Staleness, preset
from artangram.gateway.gateway import EVERYWHERE
from artangram.pipeline.loops import Loop, asynchronous, one_off, synchronous
from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.workload import TRAIN_DEVICES, beside, stopping

ALL = 1000
"""Replicas that take a version at the same time; each stops only for its own load."""

MONOLITHIC = {"H800": 128}
"""All devices sample, then all of them train."""
HOMOGENEOUS = {"H800": 96}
MIXED = {"H800": 64, "H20": 32}
"""As many devices, at five sixths of the price with those that train."""


class System(Struct, frozen=True, kw_only=True):
    """How one of them works."""

    name: str
    loop: Loop = asynchronous
    staleness: Staleness = preset("rollart")
    in_step: bool = False
    """Environments are stepped as one batch, and their rewards asked for in their places."""
    weights_beside: bool = True
    """New weights travel while replicas go on; else all stop for them."""
    devices: dict[str, int]
    train_devices: int = TRAIN_DEVICES
    affinity: Declared | Auto = affinity_of("auto")
    extra_siblings: int = 2
    """Launched in every group beyond its size; the slowest are not waited for."""

    def bounded(self, bound: int) -> "System":
        """The same with another bound on staleness."""
        bounded = structs.replace(self.staleness, max_staleness=bound)
        return structs.replace(self, staleness=bounded)

    def on(self, scenario: Scenario) -> Scenario:
        """The scenario as this system runs it. Devices are those the scenario has."""
        path = beside if self.weights_beside else stopping
        return structs.replace(
            scenario,
            loop=self.loop,
            staleness=self.staleness,
            in_step=self.in_step,
            weights=path(scenario.model),
            at_once=ALL,
            affinity=self.affinity,
            extra_siblings=self.extra_siblings,
        )


ROLLART = System(name="rollart", devices=MIXED)
AREAL = System(
    name="areal",
    staleness=preset("areal"),
    weights_beside=False,
    devices=HOMOGENEOUS,
    affinity=EVERYWHERE,
    extra_siblings=0,
)
ONE_OFF = structs.replace(AREAL, name="one-off", loop=one_off, staleness=preset("one-off"))
SYNC_PLUS = structs.replace(
    ONE_OFF, name="sync+", loop=synchronous, devices=MONOLITHIC, train_devices=128
)
SYNC = structs.replace(SYNC_PLUS, name="sync", in_step=True)

ALONE = (
    structs.replace(AREAL, name="fitting hardware", devices=MIXED, affinity=affinity_of("auto")),
    structs.replace(AREAL, name="weights beside", weights_beside=True),
    structs.replace(AREAL, name="early shedding", staleness=preset("rollart")),
    structs.replace(AREAL, name="spare siblings", extra_siblings=ROLLART.extra_siblings),
)
"""What ours has and areal has not, each by itself."""
