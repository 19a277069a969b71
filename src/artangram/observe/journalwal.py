"""Whether the write-ahead log of a SQLite file is complete.

SQLite reads a log up to the first frame whose checksum is wrong and silently drops the rest. That
is right for a transaction that was being written when its process died: no commit follows, and no
caller was told that it is safe. For a transaction that does not fit into memory SQLite even
overwrites its own frames, and updates their checksums only at its commit. When a commit of the same
log follows, acknowledged frames are lost.
"""

import struct
from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_BIG_ENDIAN_SUMS = 0x377F0683
_LITTLE_ENDIAN_SUMS = 0x377F0682


def num_lost_frames(log: Path) -> int:
    """How many frames that were once written whole can no longer be read."""
    data = log.read_bytes() if log.exists() else b""
    if len(data) < _HEADER.size:
        return 0
    magic, _, page_size, _, *salts, sum_1, sum_2 = _HEADER.unpack_from(data)
    if magic not in (_BIG_ENDIAN_SUMS, _LITTLE_ENDIAN_SUMS):
        return 1
    words = ">" if magic == _BIG_ENDIAN_SUMS else "<"
    if _sums(data[:24], (0, 0), words) != (sum_1, sum_2):
        return 1
    return _lost(data, page_size, salts=salts, sums=(sum_1, sum_2), words=words)


def _lost(
    data: bytes, page_size: int, *, salts: list[int], sums: tuple[int, int], words: str
) -> int:
    size = _FRAME.size + page_size
    is_broken, num_behind, lost = False, 0, 0
    for at in range(_HEADER.size, len(data) - size + 1, size):
        _, pages_at_commit, *rest = _FRAME.unpack_from(data, at)
        if rest[:2] != salts:
            break  # From here on the file holds an older log.
        if not is_broken:
            sums = _sums(data[at : at + 8], sums, words)
            sums = _sums(data[at + _FRAME.size : at + size], sums, words)
            is_broken = list(sums) != rest[2:]
        else:
            num_behind += 1
            if pages_at_commit:
                lost = num_behind
    return lost


def _sums(data: bytes, sums: tuple[int, int], words: str) -> tuple[int, int]:
    """SQLite's running checksum over pairs of 32 bit words."""
    one, two = sums
    numbers = struct.unpack(f"{words}{len(data) // 4}I", data)
    for index in range(0, len(numbers), 2):
        one = (one + numbers[index] + two) & 0xFFFFFFFF
        two = (two + numbers[index + 1] + one) & 0xFFFFFFFF
    return one, two
