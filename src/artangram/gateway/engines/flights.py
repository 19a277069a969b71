"""The table of running requests that engines of this process share.

A flight is a running request. It has begun when its prompt has been read.
"""

from array import array
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import EngineGone, EngineRequest, Stats, refuse_unfit


class Flight(Protocol):
    @property
    def has_begun(self) -> bool: ...


F = TypeVar("F", bound=Flight)


class FlightBooks(Generic[F]):
    """The part of `protocol.Engine` that needs no engine."""

    lacks: tuple[str, ...] = ("top_logprobs", "json_schema")
    """Parameters of `Sampling` that it cannot obey."""

    def __init__(self, *, name: str, max_context: int, version: int) -> None:
        self.name = name
        self.max_context = max_context
        self._vocab_size: int | None = None
        """If known, requests with other tokens are refused: some engines crash on them."""
        self._version = version
        self._flights: dict[str, F] = {}
        self._is_paused = False
        self._gone = ""
        """Why it is gone; empty if it is not."""
        self._prompt_tokens = 0
        self._sampled_tokens = 0
        self._taken_tokens = 0

    def __repr__(self) -> str:
        state = self._gone or f"version {self._version}, {len(self._flights)} live"
        return f"<{type(self).__name__} {self.name}: {state}>"

    def stats(self) -> Stats:
        running = sum(flight.has_begun for flight in self._flights.values())
        return Stats(
            version=self._version,
            running=running,
            waiting=len(self._flights) - running,
            is_paused=self._is_paused,
            prompt_tokens=self._prompt_tokens,
            sampled_tokens=self._sampled_tokens,
            taken_tokens=self._taken_tokens,
        )

    def _checked(self, request: EngineRequest) -> int:
        """Tokens of its prompt that were in a request before it, so far as the engine knows."""
        return 0

    def _board(self, request: EngineRequest, flight: F) -> None:
        """Add the request to the table. Raises if it cannot run."""
        self._raise_if_gone()
        refuse_unfit(
            request,
            max_context=self.max_context,
            vocab_size=self._vocab_size,
            lacks=self.lacks,
            checked=self._checked(request),
        )
        if request.id in self._flights:
            raise BadInput(
                "id", f"{request.id} is already running", "give every request its own id"
            )
        self._flights[request.id] = flight

    def _raise_if_gone(self) -> None:
        if self._gone:
            raise EngineGone(f"{self.name}: {self._gone}")


def name_of(tokens: Sequence[int]) -> str:
    """Distinguishes the caches of different prompts."""
    return f"{len(tokens)} {crc32(array('q', tokens)):08x}"
