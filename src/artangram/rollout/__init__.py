"""From problems to groups of finished trajectories."""

from artangram.core.rollout.weights import Order, Staleness, Update, preset
from artangram.rollout.dispatcher import Spares
from artangram.rollout.phases import PhaseLimits
from artangram.rollout.rollout import Plan, Rollout, RolloutState
from artangram.rollout.runner import Retries
from artangram.rollout.sink import Sink
from artangram.rollout.source import Source, SourceState, Stage
from artangram.rollout.tally import Bias, RolloutTally

__all__ = [
    "Bias",
    "Order",
    "PhaseLimits",
    "Plan",
    "Retries",
    "Rollout",
    "RolloutState",
    "RolloutTally",
    "Sink",
    "Source",
    "SourceState",
    "Spares",
    "Stage",
    "Staleness",
    "Update",
    "preset",
]
