"""What a worker is asked over its link: one call at a time.

An answer is the packed result. A function that raised is refused with `CallFailed`, one that cannot
be imported with `InfraFailed`; the message is the traceback.
"""

import msgspec
from msgspec import Struct

from artangram.link import LinkTerms

VERSION = 1

LONGEST_CALL_BYTES = 1 << 36


class WorkerRequest(Struct, frozen=True, array_like=True):
    """One call."""

    target: str
    memory_mb: int | None
    body: bytes


worker_terms: LinkTerms[WorkerRequest] = LinkTerms(
    name="function worker",
    version=VERSION,
    decode=msgspec.msgpack.Decoder(WorkerRequest).decode,
    most_record_bytes=LONGEST_CALL_BYTES,
)
owner_terms: LinkTerms[None] = LinkTerms(
    name="function worker",
    version=VERSION,
    decode=msgspec.msgpack.Decoder(None).decode,
    most_record_bytes=LONGEST_CALL_BYTES,
)
