"""What a caller asks of an init, as bytes: a fixed head, then what the verb needs.

Behind the head come the limits, then texts, each ended by a NUL: the path (of a command, where it
starts), the words of the command, its environment. `init.c` reads the same layout.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN, END, READ, WRITE, CHANGES, STOP, CONTINUE, LEARN, SIGNAL, END_PARALLEL = range(10)
"""Each is answered, but LEARN, which numbers the control group whose `tasks` file it brings. The
last two name a parallel command by the number of its request, as text; SIGNAL has its signal as
mode."""

KEEP, WATCHED, HAS_STDIN, MOVES, RESTS, BESIDE, PARALLEL, TERMINAL = (1 << bit for bit in range(8))
"""Flags of a RUN: leftovers stay; output is handed out from the start; a descriptor is its stdin;
init joins a control group, whose number is in the place of a mode; it leaves that one for REST when
nothing runs any more, unless a process is kept; commands of other sandboxes run beside it; it runs
beside other commands here, with the three descriptors it brings as stdin, stdout and stderr; or
with a terminal, which is handed out."""
REST = 0
MOST_PARALLEL = 64
WINDOW = -1
"""In the place of a limit: rows and columns of a terminal, as `rows << 16 | columns`."""

_HEAD = struct.Struct("<QBBIIIid")
_LIMIT = struct.Struct("<iq")


class InitRequest:
    """One request; what its verb does not need stays at its default."""

    __slots__ = (
        "environ",
        "flags",
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
        flags: int = 0,
        mode: int = 0,
    ) -> None:
        self.number = number
        self.verb = verb
        self.path = path
        self.words = words
        self.environ = environ
        self.rlimits = dict(rlimits or {})
        self.timeout_s = timeout_s
        self.flags = flags
        self.mode = mode

    def encode(self) -> bytes:
        """For every verb but RUN, which has `run_order`."""
        head = _HEAD.pack(self.number, self.verb, 0, 0, 0, 0, self.mode, 0.0)
        return head + self.path + b"\0"


def run_order(
    number: int,
    *,
    texts: bytes,
    num_words: int,
    num_environ: int,
    rlimits: Mapping[int, int],
    timeout_s: float,
    flags: int,
    group: int,
) -> bytes:
    """A RUN. `texts` are path, words and environment as they travel, each ended by a NUL."""
    head = _HEAD.pack(number, RUN, flags, num_words, num_environ, len(rlimits), group, timeout_s)
    if not rlimits:
        return head + texts
    return head + b"".join(_LIMIT.pack(kind, soft) for kind, soft in rlimits.items()) + texts


def decode(data: bytes) -> InitRequest:
    number, verb, flags, num_words, num_environ, num_limits, mode, timeout_s = _HEAD.unpack_from(
        data
    )
    texts_at = _HEAD.size + num_limits * _LIMIT.size
    texts = data[texts_at:].split(b"\0")
    return InitRequest(
        number,
        verb,
        path=texts[0],
        words=texts[1 : 1 + num_words],
        environ=texts[1 + num_words : 1 + num_words + num_environ],
        rlimits=dict(_LIMIT.iter_unpack(data[_HEAD.size : texts_at])),
        timeout_s=timeout_s,
        flags=flags,
        mode=mode,
    )
