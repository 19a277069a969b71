"""The one exception for a file that cannot be accepted, whatever is wrong with it."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from os import PathLike

import msgspec

from artangram.core.errors import BadInput

AnyPath = str | PathLike[str]

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding JSON from outside can raise: wrong shape, wrong bytes, endless nesting."""


class BadFile(BadInput):
    """A file that cannot be accepted: where in it, what is wrong, and how to mend it.

    `str()` of it is one line: `trace.jsonl:12: turns[0].think_s: ...; give ...`. `line` counts from
    1; it is 0 when the complaint is about the file as a whole.
    """

    def __init__(self, path: AnyPath, complaint: BadInput, *, line: int = 0) -> None:
        super().__init__(complaint.field, complaint.problem, complaint.fix)
        self.path = str(path)
        self.line = line

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        where = f"{place}: {self.field}" if self.field else place
        # What a file says is part of the text, and it may hold line breaks.
        return " ".join(f"{where}: {self.problem}; {self.fix}".split())


def nearest(word: str, valid: list[str]) -> str:
    """The fix for a word that is not among the `valid` ones."""
    close = get_close_matches(word, valid, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(valid)}"


_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


def in_our_words(error: Exception, fields_at: Callable[[str], list[str]]) -> BadInput:
    """What the JSON decoder complains of; `fields_at(place)` are the fields that may be there."""
    if not isinstance(error, msgspec.ValidationError):
        return BadInput("json", str(error).lower(), "write one whole JSON object per line")
    match = _PLACE.match(str(error))
    assert match is not None
    place, what = match["place"] or "", match["what"]
    if unknown := _UNKNOWN.match(what):
        fix = nearest(unknown[1], fields_at(place))
        return BadInput(_join(place, unknown[1]), "unknown field", fix)
    if missing := _MISSING.match(what):
        return BadInput(_join(place, missing[1]), "is missing", "add it")
    return BadInput(place or "json", what[0].lower() + what[1:], _fix(what))


def _fix(what: str) -> str:
    if "out of range" in what:
        return "give a number of fewer digits"
    return "give 0 or more" if ">= 0" in what else "give that"


def _join(place: str, field: str) -> str:
    return f"{place}.{field}" if place else field
