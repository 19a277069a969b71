"""What one end of a link has to send, in the order in which it may leave.

- A record that fits in one frame leaves at once, and all that wait leave in one write.
- A longer one leaves in parts, several of them in turn, never more than the peer has given credit
  for. So a short record or a heartbeat waits for a window of parts at most.
- Records of one stream arrive in the order in which they were put: a short one waits for the long
  one of its stream before it. Without a stream it waits for none.
- The queue is bounded: beyond `most_queued_bytes` a record is refused with `LinkFull`. Only answers
  are not, for their askers bound them.
"""

from collections import deque
from struct import Struct as Layout

from artangram.link.errors import LinkFull
from artangram.link.frames import ASK, HEAD, OPEN, PART, PART_BYTES, TELL, frame

MOST_PARALLEL = 8
"""Long records that travel side by side; further ones wait for their turn."""

OPENING = Layout(">BQQ")
"""Kind, number and length of the record whose parts follow."""

_Record = tuple[int, int, bytes]
"""Kind, number and body."""


class _Transfer:
    """A long record under way, and the records of its stream that wait for it."""

    __slots__ = ("body", "num_sent", "number", "opening", "stream", "waiting")

    def __init__(self, number: int, record: _Record, stream: str | None) -> None:
        kind, of, body = record
        self.number = number
        self.stream = stream
        self.opening = frame(OPEN, number, OPENING.pack(kind, of, len(body)))
        self.body = memoryview(body)
        self.num_sent = 0
        self.waiting: deque[_Record] = deque()


class Outbox:
    """See the module."""

    def __init__(self, *, most_queued_bytes: int) -> None:
        self._most_queued_bytes = most_queued_bytes
        self.most_record_bytes = PART_BYTES
        """What the peer accepts; its hello says."""
        self.credit_bytes = 0
        """How much the peer is ready to take in parts."""
        self.queued_bytes = 0
        self._whole: list[bytes] = []
        self._streams: dict[str, _Transfer] = {}
        #: Those under way first, then those that wait for their turn.
        self._transfers: deque[_Transfer] = deque()
        self._num_transfers = 0

    @property
    def is_empty(self) -> bool:
        return not self._whole and not self._transfers

    @property
    def has_ready(self) -> bool:
        """Is there something that may leave now?"""
        return bool(self._whole) or bool(self._transfers and self.credit_bytes)

    def put(self, kind: int, number: int, body: bytes, stream: str | None) -> None:
        """Queue a record. `ValueError` if it is longer than the peer takes."""
        size = len(body)
        if size > self.most_record_bytes:
            most = f"the other side takes {self.most_record_bytes} at once"
            raise ValueError(f"{size} bytes are too many for one record; {most}")
        is_full = self.queued_bytes and self.queued_bytes + size > self._most_queued_bytes
        if is_full and kind in (TELL, ASK):
            problem = f"{self.queued_bytes} bytes wait for the other side to read them"
            raise LinkFull(f"{problem}; send less, or drain first")
        self.queued_bytes += size + HEAD.size
        if stream is not None and stream in self._streams:
            self._streams[stream].waiting.append((kind, number, body))
        elif size <= PART_BYTES:
            self._whole += (HEAD.pack(size, kind, number), body)
        else:
            self._begin((kind, number, body), stream)

    def put_frame(self, kind: int, number: int = 0, body: bytes = b"") -> None:
        """Queue a frame that belongs to the link itself; there are few, and none is refused."""
        self._whole.append(frame(kind, number, body))
        self.queued_bytes += HEAD.size + len(body)

    def whole(self) -> bytes:
        """All records and frames that need no credit; they count as sent now."""
        data = b"".join(self._whole)
        self._whole.clear()
        self.queued_bytes -= len(data)
        return data

    def part(self) -> bytes:
        """The next part that the peer has given credit for; empty without credit."""
        if not self._transfers or not self.credit_bytes:
            return b""
        transfer = self._transfers.popleft()
        start, left = transfer.num_sent, len(transfer.body) - transfer.num_sent
        size = min(PART_BYTES, self.credit_bytes, left)
        data = transfer.opening + frame(PART, transfer.number, transfer.body[start : start + size])
        transfer.opening = b""
        transfer.num_sent += size
        self.credit_bytes -= size
        self.queued_bytes -= size
        if size < left:
            self._transfers.insert(MOST_PARALLEL - 1, transfer)
        else:
            self._end(transfer)
        return data

    def _begin(self, record: _Record, stream: str | None) -> _Transfer:
        self._num_transfers += 1
        transfer = _Transfer(self._num_transfers, record, stream)
        self._transfers.append(transfer)
        if stream is not None:
            self._streams[stream] = transfer
        return transfer

    def _end(self, transfer: _Transfer) -> None:
        """The records that waited for `transfer` go on, up to the next long one."""
        self.queued_bytes -= HEAD.size
        if transfer.stream is not None:
            del self._streams[transfer.stream]
        waiting = transfer.waiting
        while waiting:
            kind, number, body = waiting.popleft()
            if len(body) <= PART_BYTES:
                self._whole += (HEAD.pack(len(body), kind, number), body)
            else:
                self._begin((kind, number, body), transfer.stream).waiting = waiting
                return
