"""How arguments and answers travel to a function and back.

- Plain data is msgpack: any process may read it, and reading it runs nothing.
- Anything else is a pickle, which only our own processes exchange; a service that takes calls over
  HTTP refuses bodies that `is_pickled`.
- `unpacked(packed(value))` equals `value`, in types too: what msgpack would change (a tuple, a key
  that is no string) is pickled.
"""

import pickle
from typing import Any

import msgspec

_PLAIN, _PICKLED = b"m", b"p"
_SCALARS = frozenset({type(None), bool, float, str, bytes})
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1
"""What msgpack can hold."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def packed(value: Any) -> bytes:
    """`value` as bytes. Raises what pickle raises for values that cannot travel."""
    if _is_plain(value):
        return _PLAIN + _encode(value)
    return _PICKLED + pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    """The value of `packed` bytes. A pickle is trusted: see `is_pickled`."""
    body = memoryview(data)[1:]
    return pickle.loads(body) if is_pickled(data) else _decode(body)


def is_pickled(data: bytes) -> bool:
    """Would reading `data` run code that its sender chose?"""
    return data[:1] == _PICKLED


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is int:
        return bool(_LEAST_INT <= value <= _MOST_INT)
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return False
