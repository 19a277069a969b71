"""The only door to the model: sessions, engines, and which engine serves whom."""

from artangram.core.affinity import Auto, Declared, Rates, affinity_of
from artangram.core.split import Splits, splits_of
from artangram.gateway.counters import Counters, Fallback
from artangram.gateway.engines.protocol import (
    BadWeights,
    Chunk,
    Engine,
    EngineGone,
    FinishReason,
    Sampling,
)
from artangram.gateway.gateway import ContextFull, Gateway
from artangram.gateway.session import Late, Session, SessionClosed
from artangram.gateway.turn import Reply
from artangram.gateway.watchdog import StallLimits

__all__ = [
    "Auto",
    "BadWeights",
    "Chunk",
    "ContextFull",
    "Counters",
    "Declared",
    "Engine",
    "EngineGone",
    "Fallback",
    "FinishReason",
    "Gateway",
    "Late",
    "Rates",
    "Reply",
    "Sampling",
    "Session",
    "SessionClosed",
    "Splits",
    "StallLimits",
    "affinity_of",
    "splits_of",
]
