"""Leaves an API alone that fails or refuses, then asks once before all ask again. Pure.

- `patience` failures in a row open it for `rest_s`, twice as long each further time, with jitter.
- A refusal opens it at once, for as long as the API said.
- When the rest is over one call goes ahead, the probe; the others wait for what it learns.
"""

import random
from enum import Enum


class Way(Enum):
    """What a call finds."""

    FREE = "free"
    PROBE = "probe"
    """It goes ahead alone; its end has to be reported."""
    WAIT = "wait"
    """A probe is under way."""
    SHUT = "shut"


class Breaker:
    """What is known of one API's health."""

    __slots__ = (
        "_failures",
        "_is_probed",
        "_most_rest_s",
        "_patience",
        "_rest_s",
        "_rests",
        "_rng",
        "shut_until",
    )

    def __init__(
        self, *, patience: int, rest_s: float, most_rest_s: float, rng: random.Random
    ) -> None:
        self._patience = patience
        self._rest_s = rest_s
        self._most_rest_s = most_rest_s
        self._rng = rng
        self._failures = 0
        self._rests = 0
        self._is_probed = False
        self.shut_until: float | None = None
        """`None` while all is well."""

    def __repr__(self) -> str:
        return f"<Breaker shut until {self.shut_until}, {self._failures} failures in a row>"

    @property
    def is_failing(self) -> bool:
        """Did the latest call fail?"""
        return self._failures > 0

    def way(self, now: float) -> Way:
        """What a call finds now."""
        if self.shut_until is None:
            return Way.FREE
        if now < self.shut_until:
            return Way.SHUT
        if self._is_probed:
            return Way.WAIT
        self._is_probed = True
        return Way.PROBE

    def succeeded(self) -> None:
        """A call was answered: all is well."""
        self._failures = self._rests = 0
        self._is_probed = False
        self.shut_until = None

    def failed(self, now: float) -> float | None:
        """A call failed. Until when no call should be made; `None` if that changes nothing."""
        self._failures += 1
        if self.shut_until is None and self._failures < self._patience:
            return None
        return self._shut(now + self._next_rest_s())

    def refused(self, now: float, rest_s: float | None) -> float:
        """The API refused, for `rest_s` if it said so. Returns until when to make no call."""
        return self._shut(now + (self._next_rest_s() if rest_s is None else rest_s))

    def forget_probe(self) -> None:
        """The probe was given up; another call has to ask."""
        self._is_probed = False

    def _shut(self, until: float) -> float:
        self._is_probed = False
        self.shut_until = max(self.shut_until or 0.0, until)
        return self.shut_until

    def _next_rest_s(self) -> float:
        rest_s = min(self._most_rest_s, self._rest_s * 2.0**self._rests)
        self._rests += 1
        # At least half of it: an API that is called again at once has not rested.
        return rest_s * self._rng.uniform(0.5, 1.0)
