"""How much of the affinity gain hangs on what the paper does not report, by the fluid alone.

64 H800 and 24 H20 against 208 H20 and 72 H800, which cost the same, for the mix of the bench. Hit
rate, achieved arithmetic and achieved bandwidth are varied one at a time. Links, sizes of weights
and the trainer are not part of a fluid: these rows say nothing about them.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from artangram.gateway.hardware import Roofline, hardware, model_shape
from artangram.sim.fluid import alone_s, divided_s, need_s
from artangram_bench.simulated.workload import SHAPES

MIXED = {"H800": 64, "H20": 24}
ALONE_OF = {"H20": 208, "H800": 72}
HIT_RATES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.6)
USUAL_HITS = 0.9
"""Where the others are varied."""
FACTORS = (0.7, 1.3)


class FluidGain(Struct, frozen=True, kw_only=True):
    """What a fluid gains over each kind alone."""

    model: str
    varied: str
    over_h20: float
    over_h800: float


def sensitivity(models: tuple[str, ...]) -> Iterator[FluidGain]:
    for model in models:
        for rate in HIT_RATES:
            yield _gain(model, f"hits {rate:.0%}", hit_rate=rate)
        for factor in FACTORS:
            yield _gain(model, f"hits {USUAL_HITS:.0%}, arithmetic x {factor:g}", arithmetic=factor)
        for factor in FACTORS:
            yield _gain(model, f"hits {USUAL_HITS:.0%}, bandwidth x {factor:g}", bandwidth=factor)


def _gain(
    model: str,
    varied: str,
    *,
    hit_rate: float = USUAL_HITS,
    arithmetic: float = 1.0,
    bandwidth: float = 1.0,
) -> FluidGain:
    shape, needs = model_shape(model), {}
    for kind in MIXED:
        device = hardware(kind)
        device = structs.replace(
            device,
            flops=arithmetic * device.flops,
            bandwidth=bandwidth * device.bandwidth,
        )
        replica = Roofline(hardware=device, model=shape, tp=shape.tp)
        needs[kind] = {
            name: shape.tp * need_s(task.mean, replica, hit_rate=hit_rate)
            for name, task in SHAPES.items()
        }
    ours_s = divided_s(needs, MIXED)
    gains = {kind: alone_s(needs[kind], count) / ours_s for kind, count in ALONE_OF.items()}
    return FluidGain(model=model, varied=varied, over_h20=gains["H20"], over_h800=gains["H800"])
