"""One bucket: tensors in a `.safetensors` file.

Written by hand, from names and bytes: the library's raw interface takes pointers and differs from
release to release, and its comfortable ones need torch or numpy. Reading is the library's.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from artangram.core.errors import BadInput

_ALIGNMENT = 8
_DTYPE = re.compile(r"(?:BF|F|I|U)(\d+)(?:_\w+)?|BOOL")


class TensorData(Struct, frozen=True, kw_only=True):
    """One tensor's bytes, row by row. `dtype` is safetensors' word: `F32`, `BF16`."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    data: bytes | bytearray | memoryview

    def __post_init__(self) -> None:
        if _DTYPE.fullmatch(self.dtype) is None:
            raise BadInput("dtype", f"{self.dtype!r} of {self.name}", "say F32, BF16, I64, ...")

    @property
    def num_bytes(self) -> int:
        return memoryview(self.data).nbytes

    @property
    def element_bits(self) -> int:
        found = _DTYPE.fullmatch(self.dtype)
        return int(found[1]) if found and found[1] else 8


def write_bucket(tensors: Sequence[TensorData], path: Path) -> None:
    # The widest first, so that each begins at a multiple of its own width.
    ordered = sorted(tensors, key=lambda tensor: -tensor.element_bits)
    header = _header(ordered)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for tensor in ordered:
            file.write(tensor.data)


def _header(tensors: Sequence[TensorData]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for tensor in tensors:
        end = start + tensor.num_bytes
        entry = {"dtype": tensor.dtype, "shape": tensor.dims, "data_offsets": (start, end)}
        entries[tensor.name] = entry
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)
