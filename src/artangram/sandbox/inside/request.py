"""What a caller asks of an init, as bytes: a fixed head, then what the verb needs.

Behind the head come the limits, then texts, each ended by a NUL: the path (of a command, where it
starts), the words of the command, its environment. `init.c` reads the same layout.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN, END, READ, WRITE, CHANGES, STOP, CONTINUE = range(7)

_HEAD = struct.Struct("<QBBIIIid")
_LIMIT = struct.Struct("<iq")


class Request:
    """One request; what its verb does not need stays at its default."""

    __slots__ = (
        "environ",
        "keep",
        "mode",
        "number",
        "path",
        "rlimits",
        "timeout_s",
        "verb",
        "words",
    )

    def __init__(
        self,
        number: int,
        verb: int,
        *,
        path: bytes = b"",
        words: Sequence[bytes] = (),
        environ: Sequence[bytes] = (),
        rlimits: Mapping[int, int] | None = None,
        timeout_s: float = 0.0,
        keep: bool = False,
        mode: int = 0,
    ) -> None:
        self.number = number
        self.verb = verb
        self.path = path
        self.words = words
        self.environ = environ
        self.rlimits = rlimits or {}
        self.timeout_s = timeout_s
        self.keep = keep
        self.mode = mode

    def encode(self) -> bytes:
        head = _HEAD.pack(
            self.number,
            self.verb,
            self.keep,
            len(self.words),
            len(self.environ),
            len(self.rlimits),
            self.mode,
            self.timeout_s,
        )
        limits = b"".join(_LIMIT.pack(kind, soft) for kind, soft in self.rlimits.items())
        return head + limits + b"\0".join((self.path, *self.words, *self.environ, b""))


def decode(data: bytes) -> Request:
    number, verb, keep, num_words, num_environ, num_limits, mode, timeout_s = _HEAD.unpack_from(
        data
    )
    texts_at = _HEAD.size + num_limits * _LIMIT.size
    texts = data[texts_at:].split(b"\0")
    return Request(
        number,
        verb,
        path=texts[0],
        words=texts[1 : 1 + num_words],
        environ=texts[1 + num_words : 1 + num_words + num_environ],
        rlimits=dict(_LIMIT.iter_unpack(data[_HEAD.size : texts_at])),
        timeout_s=timeout_s,
        keep=bool(keep),
        mode=mode,
    )
