"""What the owner of a trainer's processes says to them, and what they answer.

Every process is asked the same in the same order, and answers each with `RankDone`; what it raises
travels as itself.
"""

import msgspec
from msgspec import Struct

from artangram.core.rollout.trajectory import Group
from artangram.link import LinkTerms
from artangram.train.settings import TrainSettings
from artangram.train.tally import StepMetrics

VERSION = 1


class Begin(Struct, frozen=True, kw_only=True, tag="begin"):
    """The first message: what to train, and with which ranks. Answered when the model is there."""

    model: str
    settings: TrainSettings
    seed: int
    rank: int
    meeting: str
    """A file through which the processes find each other."""


class TrainStep(Struct, frozen=True, tag="step"):
    groups: tuple[Group, ...]
    teachers: dict[str, tuple[tuple[float, ...], ...]] = {}


class Save(Struct, frozen=True, tag="save"):
    directory: str


class SaveWeights(Struct, frozen=True, tag="save_weights"):
    directory: str


class Restore(Struct, frozen=True, tag="restore"):
    directory: str


Order = Begin | TrainStep | Save | SaveWeights | Restore


class RankDone(Struct, frozen=True, kw_only=True):
    version: int
    max_context: int
    report: StepMetrics | None = None


LONGEST_STEP_BYTES = 1 << 36
"""A step carries every token of its batch."""

rank_terms: LinkTerms[Order] = LinkTerms(
    name="trainer rank",
    version=VERSION,
    decode=msgspec.msgpack.Decoder(Order).decode,
    most_record_bytes=LONGEST_STEP_BYTES,
)
owner_terms: LinkTerms[None] = LinkTerms(
    name="trainer rank", version=VERSION, decode=msgspec.msgpack.Decoder(None).decode
)
