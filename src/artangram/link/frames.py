"""How a stream of bytes is cut into frames.

A frame is the length of its body (four bytes), its kind (one), a number (eight) and its body. No
frame is longer than `MOST_FRAME_BYTES`: a longer record travels in parts, see `outbox`.
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

from artangram.link.errors import LinkBroken

HELLO: Final = 1
REFUSED: Final = 2
TELL: Final = 3
ASK: Final = 4
ANSWER: Final = 5
REFUSAL: Final = 6
BEAT: Final = 7
ECHO: Final = 8
OPEN: Final = 9
PART: Final = 10
CREDIT: Final = 11

KINDS = range(HELLO, CREDIT + 1)

PART_BYTES = 1 << 16
"""The longest body of a frame: what a small record has to wait for at most, once on its way."""

MOST_FRAME_BYTES = PART_BYTES

HEAD = Layout(">IBQ")


def frame(kind: int, number: int = 0, body: bytes | memoryview = b"") -> bytes:
    return b"".join((HEAD.pack(len(body), kind, number), body))


class FrameReader:
    """Takes bytes as they come and gives the frames that are whole."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_between_frames(self) -> bool:
        """False in the middle of one."""
        return not self._rest

    def fed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Kind, number and body of each frame that `data` completes; `LinkBroken` for garbage.

        Frames before the garbage are given first.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        start, end, head_bytes = 0, len(data), HEAD.size
        while end - start >= head_bytes:
            size, kind, number = HEAD.unpack_from(data, start)
            if size > MOST_FRAME_BYTES or kind not in KINDS:
                raise LinkBroken(f"a frame of {size} bytes of kind {kind} is not of this protocol")
            body = start + head_bytes
            if end - body < size:
                break
            start = body + size
            yield kind, number, data[body:start]
        self._rest = data[start:]
