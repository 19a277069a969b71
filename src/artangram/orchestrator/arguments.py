"""What callers give by keyword, as records: every argument of the type it says.

A wrong one is refused here by its name. Behind this border it would be found only where the
command is sent, and by then it is everybody's trouble.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from artangram.core.errors import BadInput

T = TypeVar("T")

_PLACE = re.compile(r"(?P<problem>.*) - at (?P<key>`key` in )?`\$\.?(?P<field>.*)`", re.DOTALL)


class FileRead(Struct, frozen=True, kw_only=True):
    """Of a file of a trajectory."""

    path: str
    max_bytes: Annotated[int, msgspec.Meta(ge=0)]


class FileWrite(Struct, frozen=True, kw_only=True):
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
        found = _PLACE.fullmatch(str(error))
        problem, field = (found["problem"], found["field"]) if found else (str(error), "")
        if found and found["key"]:
            problem += " as a key"
        problem = problem[:1].lower() + problem[1:]
        raise BadInput(field, problem, "give what is expected") from None
    except UnicodeEncodeError as error:
        raise _no_text(_not_text_in(given), error) from None


def plain(field: str, value: Any) -> Any:
    """`value` as `as_record` looks into it. Raises `BadInput` for what is no data at all."""
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes,))
    except (TypeError, RecursionError) as error:
        raise BadInput(field, str(error), "give plain data") from None


def as_text(field: str, value: object) -> str:
    """`value` itself. Raises `BadInput` if it is no text."""
    if not isinstance(value, str):
        raise BadInput(field, f"expected `str`, got `{type(value).__name__}`", "give a text")
    return value


def as_mapping(field: str, value: object) -> Mapping[Any, Any]:
    """`value` itself; of none an empty one. Raises `BadInput` for what maps nothing."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problem = f"expected a mapping, got `{type(value).__name__}`"
        raise BadInput(field, problem, "give a dict")
    return value


def as_json(field: str, value: object) -> bytes:
    """`value` as JSON. Raises `BadInput` for what is none."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        fix = "give numbers, text, lists and dicts with text as keys"
        raise BadInput(field, f"is no JSON: {error}", fix) from None


def as_bytes(field: str, text: str) -> bytes:
    """`text` as UTF-8. Raises `BadInput` for half a character, which some decoders leave behind."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _no_text(field, error) from None


def as_unicode(field: str, text: str) -> str:
    """`text` itself. Raises `BadInput` for half a character, which an address would leave out."""
    as_bytes(field, text)
    return text


def as_body(record: Struct) -> bytes:
    """`record` as JSON. Raises `BadInput` for a field with half a character."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError as error:
        raise _no_text(_not_text_in(structs.asdict(record)), error) from None


def as_address(url: object) -> str:
    """`url` itself. Raises `BadInput` if no client could be there."""
    try:
        parts = urlsplit(as_text("url", url))
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except BadInput:
        raise
    except ValueError:  # Of a port that is none.
        is_address = False
    if not is_address:
        raise BadInput("url", f"{url!r} is none", "give what `artangram up` printed")
    return str(url)


def _not_text_in(given: Mapping[str, Any]) -> str:
    """The name of the field."""
    return next((name for name, value in given.items() if not _is_text(value)), "")


def _is_text(value: object) -> bool:
    """Can all text in `value` be written down?"""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    except TypeError:  # Of what is no data; that is not the question.
        pass
    return True


def _no_text(field: str, error: UnicodeEncodeError) -> BadInput:
    return BadInput(field, f"is no text: {error}", "give characters of Unicode")


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
            raise BadInput(name, f"is not an option of {of}", f"use: {', '.join(known)}")
