"""What callers give by keyword, as records: every argument of the type it says.

A wrong one is refused here by its name. Behind this border it would be found only where the
command is sent, and by then it is everybody's trouble.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput

T = TypeVar("T", bound=Struct)


class Reading(Struct, frozen=True, kw_only=True):
    """Of a file of a trajectory."""

    path: str
    max_bytes: int


class Writing(Struct, frozen=True, kw_only=True):
    """Of a file of a trajectory."""

    path: str
    data: bytes


def as_record(kind: type[T], given: Mapping[str, Any]) -> T:
    """`given` as a `kind`. Raises `BadInput` for what has another type than its field."""
    try:
        return msgspec.convert(given, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, BadInput):
            raise error.__cause__ from None
        problem, _, place = str(error).rpartition(" - at `$.")
        field = place.rstrip("`")
        problem = problem[:1].lower() + problem[1:]
        raise BadInput(field, problem, "give what is expected") from None


def plain(record: Struct) -> Any:
    """`record` as `as_record` looks into it. Raises `BadInput` for what is no data at all."""
    try:
        return msgspec.to_builtins(record, builtin_types=(bytes,))
    except TypeError as error:
        raise BadInput(type(record).__name__.lower(), str(error), "give plain data") from None


def check_times(**lengths: float | None) -> None:
    """Raises `BadInput` for a length of time that is no number: JSON would make it none at all."""
    for name, length in lengths.items():
        if length is not None and not isfinite(length):
            raise BadInput(name, f"{length} is not a time", "give a number of seconds, or None")


def check_known(kind: type[Struct], given: Mapping[str, Any], *, of: str) -> None:
    """Raises `BadInput` for an argument that a `kind` does not have; `of` says of what."""
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise BadInput(name, f"is no option of {of}", f"use: {', '.join(known)}")
