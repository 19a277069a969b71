"""Versions of the weights at rest and in flight."""

from artangram.weights.bucket import TensorData
from artangram.weights.manifest import BadVersion, Manifest
from artangram.weights.roll import RollReport, Swap, roll, verified_pull
from artangram.weights.store import StoreFull, WeightStore

__all__ = [
    "BadVersion",
    "Manifest",
    "RollReport",
    "StoreFull",
    "Swap",
    "TensorData",
    "WeightStore",
    "roll",
    "verified_pull",
]
