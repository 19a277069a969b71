"""Versions of the weights at rest and in flight."""

from artangram.weights.manifest import BadVersion, Manifest
from artangram.weights.roll import (
    EngineUpdate,
    Pull,
    RollReport,
    check_version,
    load_version,
    roll,
    verified_pull,
)
from artangram.weights.store import StoreFull, WeightStore

__all__ = [
    "BadVersion",
    "EngineUpdate",
    "Manifest",
    "Pull",
    "RollReport",
    "StoreFull",
    "WeightStore",
    "check_version",
    "load_version",
    "roll",
    "verified_pull",
]
