"""What a host asks its replicas over a link.

A process is asked to be a replica (`ReplicaSpec`, answered with `Loaded`), then to answer batches,
and at last to drop its model. What its loader raises travels as itself; `MemoryError` is its last
answer.
"""

import msgspec
from msgspec import Struct

from artangram.link import LinkTerms

VERSION = 1

OUT_OF_MEMORY = 3
"""Exit code of a replica that needed more than it may have."""

MOST_LEFT_MB = 64.0
"""A process that has more left of its past is not used again: no service answers for that."""


class ReplicaSpec(Struct, frozen=True, kw_only=True, tag="spec"):
    """All a replica needs to know to begin; the first it is asked."""

    loader: str
    options: bytes
    """JSON."""
    files: tuple[str, ...]
    cores: tuple[int, ...] = ()
    """Where it may run; anywhere if empty."""
    threads: int = 1
    limit_mb: int
    environ: dict[str, str] = {}
    device: str = "cpu"
    """Where torch puts the model."""
    example: bytes | None = None
    """A payload to answer before it says that it is loaded; JSON."""
    batch: int = 1
    """How many of the example to answer at once."""
    may_follow: bool = False
    """It may take over a process that has dropped another model of its loader, and leave one."""


class Loaded(Struct, frozen=True):
    load_s: float
    used_mb: int
    is_forkable: bool
    """Importing the loader's module started no thread, so a zygote may import it."""
    batch_cost: float | None = None
    """What another payload adds to a batch, as a share of one alone; known with an example."""


class Predict(Struct, frozen=True, tag="predict"):
    """Answered with one `devices.Answer` per payload."""

    items: list[bytes]
    """Payloads; JSON."""


class Drop(Struct, frozen=True, tag="drop"):
    """Let go of the model, and wait for another spec.

    Answered with the megabytes that the process has now and had not before its first model.
    """


Request = ReplicaSpec | Predict | Drop

LONGEST_BATCH_BYTES = 1 << 36

replica_terms: LinkTerms[Request] = LinkTerms(
    name="replica",
    version=VERSION,
    decode=msgspec.msgpack.Decoder(Request).decode,
    most_record_bytes=LONGEST_BATCH_BYTES,
)
host_terms: LinkTerms[None] = LinkTerms(
    name="replica",
    version=VERSION,
    decode=msgspec.msgpack.Decoder(None).decode,
    most_record_bytes=LONGEST_BATCH_BYTES,
)
