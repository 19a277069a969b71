"""Settings that all experiments of one bench share, and the runs that overlap steps."""

from collections.abc import Mapping

from msgspec import Struct, structs

from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.workload import TRAIN_DEVICES, Reading, mixed_tasks

STEPS, WARM_UP = 8, 2
"""Of runs that overlap steps: the first ones find an empty buffer."""

FEW_STEPS = (3, 1)
"""The same of batches of 512 groups, which have eight times as much in each step."""


class Settings(Struct, frozen=True, kw_only=True):
    """Of all experiments of one bench."""

    scale: int = 8
    """Divides the paper's clusters and batches."""
    batch: int = 512
    """Trajectories of a batch with slow environments."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    models: tuple[str, ...] = ("qwen3-8b", "qwen3-14b")
    """On which hardware affinity is tried."""


def endless(
    devices: Mapping[str, int],
    settings: Settings,
    *,
    model: str = "qwen3-8b",
    reading: Reading = Reading.TRAJECTORIES,
    train_devices: int = TRAIN_DEVICES,
) -> Scenario:
    """All four tasks on these devices, in steps that overlap."""
    scenario = mixed_tasks(
        devices, model=model, scale=settings.scale, reading=reading, train_devices=train_devices
    )
    steps, warm_up = FEW_STEPS if reading is Reading.GROUPS else (STEPS, WARM_UP)
    return structs.replace(scenario, steps=steps, warm_up=warm_up)
