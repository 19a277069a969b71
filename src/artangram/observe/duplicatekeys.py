"""Finds keys that come twice in a JSON object, of which a decoder silently takes the last.

Checking every key is many times slower than decoding, so a line is checked only if it has more
colons than the record that was decoded from it.
"""

from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

import msgspec

from artangram.core.errors import BadInput


class _Twice(Exception):
    """Somewhere in what is being read."""


def refuse_twice(data: bytes, made: object) -> None:
    """Raises `BadInput` if an object in `data` has a key twice; `made` was decoded of it."""
    if data.count(b":") == _encode(made).count(b":"):
        return
    text = data.decode()
    try:
        _CHECKING.decode(text)
    except _Twice:
        place = next(_twice(_KEEPING.decode(text), ""))
        raise BadInput(place, "comes twice", "remove one of them") from None


def _checked(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _Twice


def _twice(value: object, place: str) -> Iterator[str]:
    """Where keys are that came before; an object is a tuple of pairs here."""
    if isinstance(value, tuple):
        seen = set()
        for key, inner in value:
            here = f"{place}.{key}" if place else key
            if key in seen:
                yield here
            seen.add(key)
            yield from _twice(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _twice(inner, f"{place}[{index}]")


_encode = msgspec.json.Encoder().encode
# Numbers stay text: their range is checked elsewhere.
_CHECKING = JSONDecoder(object_pairs_hook=_checked, parse_int=str, parse_float=str)
_KEEPING = JSONDecoder(object_pairs_hook=tuple, parse_int=str, parse_float=str)
