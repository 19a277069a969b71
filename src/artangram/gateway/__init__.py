"""The component through which all tokens are sampled: sessions, engines, and routing."""

from artangram.core.rollout.affinity import Auto, Declared, affinity_of
from artangram.core.rollout.costs import Rates
from artangram.core.rollout.split import Splits, splits_of
from artangram.gateway.counters import Counters, Fallback
from artangram.gateway.engines.protocol import (
    BadWeights,
    Engine,
    EngineGone,
    FinishReason,
    Sampling,
    TokenChunk,
)
from artangram.gateway.gateway import ContextFull, Gateway
from artangram.gateway.session import ReplyTimedOut, Session, SessionClosed
from artangram.gateway.turn import Reply
from artangram.gateway.watchdog import StallLimits

__all__ = [
    "Auto",
    "BadWeights",
    "ContextFull",
    "Counters",
    "Declared",
    "Engine",
    "EngineGone",
    "Fallback",
    "FinishReason",
    "Gateway",
    "Rates",
    "Reply",
    "ReplyTimedOut",
    "Sampling",
    "Session",
    "SessionClosed",
    "Splits",
    "StallLimits",
    "TokenChunk",
    "affinity_of",
    "splits_of",
]
