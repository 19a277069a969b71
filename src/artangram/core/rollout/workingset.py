"""Which sessions may begin: as many as replicas can keep in their prefix caches.

A session that comes back finds what its replica has read before, unless that was evicted. More
sessions than fit evict each other in turn, and then each turn is read from its first token:
thrashing. So a session begins when a replica has room for what it is expected to become, and until
then its first turn waits. Later turns never wait: what they need is booked.

- A replica with few turns takes a session without room: it has the time to read it again.
- Without a known size of caches there is always room.
"""

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from artangram.core.rollout.costs import Candidate, FadingMean, RoutedRequest, Speeds

GROWTH = 8.0
"""A session of a new task is expected to become this many times its first prompt."""
OCCUPIED = 0.75
"""Of its final size, booked for each session: they are not all at their end."""
FEW_TURNS = 4
"""A replica with fewer is nearly idle."""


class _Booked(Struct):
    task: str
    replica: str
    tokens: float
    length: int


class WorkingSets:
    """Books of the sessions that replicas keep. No clock, no I/O."""

    def __init__(self, speeds: Speeds) -> None:
        self._speeds = speeds
        self._booked: dict[str, _Booked] = {}
        self._used: dict[str, float] = {}
        self._lengths: dict[str, FadingMean] = {}

    def may_begin(self, wanted: RoutedRequest, candidates: Sequence[Candidate]) -> bool:
        return any(self._has_room(wanted, one) for one in candidates)

    def open_to(
        self, wanted: RoutedRequest, candidates: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        """The replica that has its session, and those with room; without any, all of them."""
        booked = self._booked.get(wanted.session)
        at = booked.replica if booked is not None else ""
        return [
            one for one in candidates if one.name == at or self._has_room(wanted, one)
        ] or candidates

    def place(self, wanted: RoutedRequest, replica: str) -> None:
        """The session is on that replica from now on, for this turn at least."""
        if not wanted.session:
            return
        tokens = self._expected(wanted)
        booked = self._booked.get(wanted.session)
        if booked is not None:
            self._used[booked.replica] -= booked.tokens
        self._booked[wanted.session] = _Booked(wanted.task, replica, tokens, wanted.prompt_tokens)
        self._used[replica] = self._used.get(replica, 0.0) + tokens

    def end(self, session: str) -> None:
        """It is closed. What it came to is what the next one of its task is expected to be."""
        booked = self._booked.pop(session, None)
        if booked is None:
            return
        self._used[booked.replica] -= booked.tokens
        self._lengths.setdefault(booked.task, FadingMean()).add(booked.length)

    def lost(self, replica: str) -> None:
        """It is gone, with all it kept."""
        for session in [name for name, one in self._booked.items() if one.replica == replica]:
            del self._booked[session]
        self._used.pop(replica, None)

    def _expected(self, wanted: RoutedRequest) -> float:
        """Tokens to book: what sessions of the task came to, or what it has by now."""
        length = self._lengths.get(wanted.task)
        whole = GROWTH * wanted.prompt_tokens if length is None else length.value
        if length is None and wanted.session in self._booked:
            whole = self._booked[wanted.session].tokens / OCCUPIED  # Foreseen when it began.
        return max(OCCUPIED * whole, float(wanted.prompt_tokens))

    def _has_room(self, wanted: RoutedRequest, one: Candidate) -> bool:
        room = self._speeds.of(one.hardware).cache_tokens - self._used.get(one.name, 0.0)
        return room == inf or one.turns < FEW_TURNS or room >= self._expected(wanted)
