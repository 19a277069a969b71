"""What an API says of its limits in the headers of an answer. Pure.

Read are `Retry-After` (RFC 9110), `RateLimit` and `RateLimit-*` (the IETF drafts), and the
`X-RateLimit-*` family with what large APIs made of it: the end of a window as seconds from now, as
Unix time in seconds or milliseconds, or as a text like `1m30s`.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

REFUSALS = frozenset({429, 503})
"""Statuses that say: not now."""

_UNIX_S, _UNIX_MS = 1e9, 1e12
"""Beyond these a number is no length any more."""
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_PARTS = re.compile(r"\b(remaining|reset|r|t)\s*=\s*(\d+)")


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long to stay away, if the answer says so; `headers` have lower-case names."""
    text = headers.get("retry-after")
    if text is not None:
        found = _length_s(text, now)
        return _date_s(text, now) if found is None else found
    return reset_s(headers, now)


def exhausted_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long nothing is left of the quota; `None` while something is, or nobody says."""
    remaining = _found(headers, ("remaining",), ("remaining", "r"))
    if remaining is None or _number(remaining) != 0:
        return None
    return reset_s(headers, now)


def reset_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long until the quota is whole again, if the answer says so."""
    text = _found(headers, ("reset-after", "reset"), ("reset", "t"))
    return None if text is None else _length_s(text, now)


def _found(
    headers: Mapping[str, str], names: tuple[str, ...], parts: tuple[str, ...]
) -> str | None:
    for name in names:
        for header in (f"ratelimit-{name}", f"x-ratelimit-{name}", f"x-ratelimit-{name}-requests"):
            if header in headers:
                return headers[header]
    # The later drafts: `RateLimit: limit=100, remaining=0, reset=5`, then `"default";r=0;t=5`.
    said = dict(_PARTS.findall(headers.get("ratelimit", "")))
    return next((said[part] for part in parts if part in said), None)


def _length_s(text: str, now: float) -> float | None:
    number = _number(text)
    if number is None:
        found = _LENGTH.findall(text)
        return sum(float(n) * _UNITS_S[unit] for n, unit in found) if found else None
    if number >= _UNIX_MS:
        number = number / 1000 - now
    elif number >= _UNIX_S:
        number -= now
    return max(0.0, number)


def _date_s(text: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except ValueError:
        return None


def _number(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None
