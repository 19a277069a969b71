"""What the owner of a trainer's processes says to them, and what they answer.

Every process gets the same orders in the same order, and answers each of them once.
"""

import msgspec
from msgspec import Struct

from artangram.core.rollout.trajectory import Group
from artangram.train.settings import TrainSettings
from artangram.train.tally import StepMetrics


class Begin(Struct, frozen=True, kw_only=True):
    """The first message: what to train, and with whom. Answered when the model is there."""

    model: str
    settings: TrainSettings
    seed: int
    rank: int
    meeting: str
    """A file through which the processes find each other."""


class TrainStep(Struct, frozen=True, tag="step"):
    groups: tuple[Group, ...]


class Save(Struct, frozen=True, tag="save"):
    directory: str


class SaveWeights(Struct, frozen=True, tag="save_weights"):
    directory: str


class Restore(Struct, frozen=True, tag="restore"):
    directory: str


Order = TrainStep | Save | SaveWeights | Restore


class RankDone(Struct, frozen=True, kw_only=True, tag="done"):
    version: int
    max_context: int
    report: StepMetrics | None = None


class RankRefused(Struct, frozen=True, tag="refused"):
    """As `BadInput`."""

    field: str
    problem: str
    fix: str


class Unwritten(Struct, frozen=True, tag="unwritten"):
    """As `OSError`: there was no room, or no right, to write what was to be saved."""

    errno: int
    problem: str


Answer = RankDone | RankRefused | Unwritten

encode = msgspec.msgpack.Encoder().encode
begin_of = msgspec.msgpack.Decoder(Begin).decode
order_of = msgspec.msgpack.Decoder(Order).decode
answer_of = msgspec.msgpack.Decoder(Answer).decode
