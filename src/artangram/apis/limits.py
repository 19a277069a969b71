"""What an API says of its limits in the headers of an answer, and the error of a refusal. Pure.

- `Retry-After` (RFC 9110) as seconds or a date, and Azure's `Retry-After-Ms`.
- `RateLimit` of the IETF drafts, old (`limit=9, remaining=0, reset=5`) and new
  (`"burst";r=0;t=5, "day";r=70;t=3600`), and `RateLimit-*`.
- What large APIs made of that: `X-RateLimit-*` (GitHub and most), `X-Rate-Limit-*`,
  `X-RateLimit-*-requests` and `-tokens` (OpenAI), `Anthropic-RateLimit-requests-*` and others.
- The end of a window is seconds from now, Unix time in seconds or milliseconds, a text like
  `1m30s`, or a date. Points in time are read on the API's own clock, if it sends one (`Date`).
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import NamedTuple

from artangram.core.errors import InfraFailed

REFUSALS = frozenset({429, 503})
"""Statuses that say: not now."""
FORBIDDEN = 403
"""GitHub's way to say it: only with a limit that is used up, or a time to come back."""

_UNIX_S, _UNIX_MS = 1e9, 1e12
"""Beyond these a number is no length any more."""
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_LENGTH = re.compile(rf"(?:{_PART.pattern})+")
_NAMED = re.compile(r"\b(remaining|reset|r|t)\s*=\s*(\d+)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_COUNTED = re.compile(
    r"(?P<family>(?:x-)?rate-?limit-|anthropic-ratelimit-[a-z-]+?-)"
    r"(?P<what>remaining|reset-after|reset)(?P<after>-[a-z]+)?"
)


class TurnedAway(InfraFailed):
    """The API did not take the call: nothing was done, so any call may be made again later.

    It is no failure of the call: one that was refused ten times is as good as a new one.
    """


class Quota(NamedTuple):
    """One of the limits of an API, as far as the answer says."""

    remaining: float | None
    reset_s: float | None
    """How long until it is whole again."""

    @property
    def is_used_up(self) -> bool:
        return self.remaining is not None and self.remaining <= 0


def is_refusal(status: int, headers: Mapping[str, str]) -> bool:
    """Does the answer say that nothing was done, and to come back later?"""
    if status == FORBIDDEN:
        return "retry-after" in headers or any(one.is_used_up for one in quotas(headers, 0.0))
    return status in REFUSALS


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long to stay away, if the answer says so; `headers` have lower-case names."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    if "retry-after" in headers:
        return _length_s(headers["retry-after"], _there(headers, now))
    exhausted = exhausted_s(headers, now)
    if exhausted is not None:
        return exhausted
    # The answer does not say which limit it was: assume the first that is whole again.
    resets = (one.reset_s for one in quotas(headers, now))
    return min((reset_s for reset_s in resets if reset_s is not None), default=None)


def exhausted_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long nothing is left of a limit; `None` while something is, or if it does not say."""
    used_up = (one.reset_s for one in quotas(headers, now) if one.is_used_up)
    return max((reset_s for reset_s in used_up if reset_s is not None), default=None)


def quotas(headers: Mapping[str, str], now: float) -> list[Quota]:
    """Every limit that the answer names."""
    there = _there(headers, now)
    return [
        Quota(_number(said.get("remaining", "")), _length_s(said.get("reset", ""), there))
        for said in (*_counted(headers), *_listed(headers.get("ratelimit", "")))
    ]


def _counted(headers: Mapping[str, str]) -> list[dict[str, str]]:
    """The limits that have headers of their own, each by what is said of it."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for header, text in headers.items():
        named = _COUNTED.fullmatch(header)
        if named is not None:
            said = found.setdefault((named["family"], named["after"] or ""), {})
            said[named["what"]] = text
    for said in found.values():
        said["reset"] = said.get("reset-after", said.get("reset", ""))
    return list(found.values())


def _listed(text: str) -> Iterator[dict[str, str]]:
    """The limits in one header of the later drafts."""
    bare = _QUOTED.sub("", text)
    # The old form is one limit with commas in it, the new one a list of limits.
    for item in bare.split(",") if ";" in bare else [bare]:
        said: dict[str, str] = dict(_NAMED.findall(item))
        if said:
            yield {
                "remaining": said.get("remaining", said.get("r", "")),
                "reset": said.get("reset", said.get("t", "")),
            }


def _there(headers: Mapping[str, str], now: float) -> float:
    """What time it is at the API."""
    said = _date(headers.get("date", ""))
    return now if said is None else said


def _length_s(text: str, now: float) -> float | None:
    number = _number(text)
    if number is None:
        if _LENGTH.fullmatch(text.strip()):
            return sum(float(n) * _UNITS_S[unit] for n, unit in _PART.findall(text))
        date = _date(text)
        return None if date is None else max(0.0, date - now)
    if number >= _UNIX_MS:
        number = number / 1000 - now
    elif number >= _UNIX_S:
        number -= now
    return max(0.0, number)


def _date(text: str) -> float | None:
    """Unix time of a date as HTTP or RFC 3339 writes it; without a zone it is UTC."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            found = read(text.strip())
        except (ValueError, OverflowError):
            continue
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text.strip())
    except ValueError:
        return None
    return number if isfinite(number) else None
