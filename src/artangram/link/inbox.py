"""Long records on their way in: parts are put together, and credit is given for those that came.

Memory is claimed part by part, never because a peer announced a length.
"""

from artangram.link.errors import LinkBroken
from artangram.link.outbox import MOST_PARALLEL, OPENING


class _Incoming:
    __slots__ = ("kind", "num_missing", "number", "pieces")

    def __init__(self, kind: int, number: int, size: int) -> None:
        self.kind = kind
        self.number = number
        self.num_missing = size
        self.pieces: list[bytes] = []


class Inbox:
    """See the module."""

    def __init__(self, *, most_record_bytes: int, window_bytes: int) -> None:
        self._most_record_bytes = most_record_bytes
        self._window_bytes = window_bytes
        self._incoming: dict[int, _Incoming] = {}
        self._owed_bytes = 0

    def open(self, transfer: int, opening: bytes) -> None:
        """The parts of a long record are about to come."""
        if len(opening) != OPENING.size or transfer in self._incoming:
            raise LinkBroken(f"long record {transfer} was opened in a way that makes no sense")
        kind, number, size = OPENING.unpack(opening)
        if size > self._most_record_bytes:
            raise LinkBroken(f"a record of {size} bytes is longer than was agreed")
        if len(self._incoming) == MOST_PARALLEL:
            raise LinkBroken(f"more than {MOST_PARALLEL} long records came at once")
        self._incoming[transfer] = _Incoming(kind, number, size)

    def part(self, transfer: int, piece: bytes) -> tuple[int, int, bytes] | None:
        """Take a part in; kind, number and body of its record when that was the last."""
        incoming = self._incoming.get(transfer)
        if incoming is None or len(piece) > incoming.num_missing:
            raise LinkBroken(f"a part of long record {transfer} came that does not belong to it")
        self._owed_bytes += len(piece)
        incoming.pieces.append(piece)
        incoming.num_missing -= len(piece)
        if incoming.num_missing:
            return None
        del self._incoming[transfer]
        return incoming.kind, incoming.number, b"".join(incoming.pieces)

    def due_credit(self) -> int:
        """How much credit the peer gets now: half a window at a time."""
        if self._owed_bytes * 2 < self._window_bytes:
            return 0
        due, self._owed_bytes = self._owed_bytes, 0
        return due
