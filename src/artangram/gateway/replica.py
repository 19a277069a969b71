"""An engine with what the gateway knows about it: its class, what it has to do, what it has read.

A turn is on one replica at a time, as a `PendingTurn`. Tickets end with their `serving` block, so
the outstanding work of a replica without turns is exactly zero.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from math import exp

from artangram.core.rollout.affinity import Choice
from artangram.core.rollout.costs import Candidate, Observed, TokenWork
from artangram.core.rollout.split import DecodeChoice
from artangram.gateway.engines.protocol import (
    Cache,
    Engine,
    EngineRequest,
    Finish,
    Handover,
    TokenChunk,
)
from artangram.gateway.turn import Turn

MOST_HELD = 4096
"""Sessions whose prefix a replica is believed to keep; engines forget the oldest, too."""


RECENT_S = 10.0
"""Older reading counts little: the replica may read for other tasks by now."""


class PendingTurn:
    """A turn on a replica: the work that is left of it."""

    __slots__ = (
        "asked",
        "decode",
        "first_at",
        "first_tokens",
        "found",
        "held",
        "is_alone",
        "is_held_up",
        "last_at",
        "prefill",
        "sampled",
        "started_at",
        "turn",
    )

    def __init__(self, turn: Turn, work: TokenWork, *, is_alone: bool, now: float) -> None:
        self.turn = turn
        self.prefill = work.prefill
        self.decode = work.decode
        self.is_alone = is_alone
        """No other turn had anything left to read when it came."""
        self.is_held_up = False
        """By the reader of its stream, which has not taken its last tokens yet."""
        self.started_at = now
        self.first_at: float | None = None
        self.last_at = now
        self.sampled = 0
        self.first_tokens = 0
        self.asked = turn.num_tokens
        self.held = 0
        """Tokens of the session that the replica had read before, so far as is known."""
        self.found: int | None = None
        """Tokens that were in the engine's prefix cache, if it said so."""


class Recent:
    """A rate per second over the last few seconds."""

    __slots__ = ("_at", "_per_s")

    def __init__(self) -> None:
        self._per_s = 0.0
        self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        self._per_s = self.per_s(now) + amount / RECENT_S
        self._at = now

    def per_s(self, now: float) -> float:
        return self._per_s * exp((self._at - now) / RECENT_S)


class EngineReplica:
    """See the module."""

    def __init__(self, engine: Engine, *, hardware: str) -> None:
        self.engine = engine
        self.handover = engine if isinstance(engine, Handover) else None
        """The engine, if it can exchange caches with others."""
        self.name = engine.name
        self.hardware = hardware
        self.is_held = False
        """It gets no new turns."""
        self.version: int | None = None
        """Of the last token it gave."""
        self._tickets: dict[str, PendingTurn] = {}
        self._prefill = 0.0
        self._decode = 0.0
        self._reads = Recent()
        self._read: OrderedDict[str, tuple[int | None, int]] = OrderedDict()

    def __repr__(self) -> str:
        held = ", held" if self.is_held else ""
        return f"<Replica {self.name} ({self.hardware}): {len(self._tickets)} turns{held}>"

    @property
    def turns(self) -> int:
        return len(self._tickets)

    @property
    def request_ids(self) -> list[str]:
        return list(self._tickets)

    @property
    def load(self) -> TokenWork:
        """What is left to do of its turns."""
        return TokenWork(self._prefill, self._decode)

    @property
    def owes(self) -> bool:
        """A turn waits for its next token."""
        return any(not ticket.is_held_up for ticket in self._tickets.values())

    @property
    def stalls(self) -> int:
        """The most replicas that one of its turns has seen stall."""
        return max((ticket.turn.stalls for ticket in self._tickets.values()), default=0)

    def on_stall(self) -> None:
        """It stalls; its turns count that."""
        for ticket in self._tickets.values():
            ticket.turn.stalls += 1

    def requests_of(self, turn: Turn) -> list[str]:
        return [one for one, ticket in self._tickets.items() if ticket.turn is turn]

    @property
    def cache_kind(self) -> str:
        return self.handover.cache_kind if self.handover is not None else ""

    def candidate(self, turn: Turn, *, now: float, taking: int = 0) -> Candidate:
        """As routing sees it, if it takes over that many tokens from another replica."""
        return Candidate(
            name=self.name,
            hardware=self.hardware,
            outstanding=self.load,
            holds=min(self.holds(turn.session), turn.num_tokens),
            takes=taking,
            reads_per_s=self._reads.per_s(now),
            turns=len(self._tickets),
        )

    def half(self, turn: Turn, *, now: float) -> DecodeChoice:
        return DecodeChoice(self.candidate(turn, now=now), self.cache_kind, self.turns)

    def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        """The answer, from what another replica has read if it can be taken over."""
        if cache is None or self.handover is None:
            return self.engine.stream(request)
        return self.handover.stream(request, cache=cache)

    def holds(self, session: str) -> int:
        """Tokens of the session it has read under the weights it has now."""
        version, tokens = self._read.get(session, (None, 0))
        return tokens if version == self.version else 0

    def forget(self, session: str) -> None:
        self._read.pop(session, None)

    @contextmanager
    def serving(
        self, turn: Turn, choice: Choice, *, request_id: str, now: float
    ) -> Iterator[PendingTurn]:
        is_alone = not self._prefill
        ticket = PendingTurn(turn, choice.work, is_alone=is_alone, now=now)
        ticket.held = min(self.holds(turn.session), turn.num_tokens)
        self._tickets[request_id] = ticket
        self._prefill += ticket.prefill
        self._decode += ticket.decode
        self._reads.add(ticket.prefill, now)
        turn.replica = self.name
        try:
            yield ticket
        finally:
            del self._tickets[request_id]
            self._work_done(ticket, prefill=ticket.prefill, decode=ticket.decode)
            self._remember(turn)
            if not self._tickets:
                self._prefill = self._decode = 0.0  # Removes rounding errors.

    def read(self, turn: Turn, cache: Cache) -> None:
        """It has read this for another replica, and keeps it."""
        self.version = cache.version
        self._keep(turn, cache.tokens)

    def took(self, ticket: PendingTurn, chunk: TokenChunk, *, now: float) -> None:
        """It gave some tokens, so the prompt has been read."""
        self.version = chunk.version
        ticket.last_at = now
        ticket.sampled += len(chunk.token_ids)
        if ticket.first_at is None:
            ticket.first_at, ticket.first_tokens = now, len(chunk.token_ids)
        done = min(ticket.decode, float(len(chunk.token_ids)))
        self._work_done(ticket, prefill=ticket.prefill, decode=done)

    def _work_done(self, ticket: PendingTurn, *, prefill: float, decode: float) -> None:
        ticket.prefill -= prefill
        ticket.decode -= decode
        self._prefill -= prefill
        self._decode -= decode

    def _remember(self, turn: Turn) -> None:
        if turn.sampled:
            self._keep(turn, turn.num_tokens)

    def _keep(self, turn: Turn, tokens: int) -> None:
        self._read[turn.session] = (self.version, tokens)
        self._read.move_to_end(turn.session)
        if len(self._read) > MOST_HELD:
            self._read.popitem(last=False)


def observed(turn: Turn, ticket: PendingTurn, choice: Choice) -> Observed:
    """What a ticket that went to its end says about task and hardware."""
    prefill_s = decode_s = None
    if ticket.first_at is not None:
        prefill_s = ticket.first_at - ticket.started_at if ticket.is_alone else None
        if later := ticket.sampled - ticket.first_tokens:
            decode_s = (ticket.last_at - ticket.first_at) * ticket.sampled / later
        else:  # All at once: reading and writing cannot be told apart.
            prefill_s, decode_s = None, ticket.last_at - ticket.started_at
    unread = choice.work.prefill if ticket.found is None else float(ticket.asked - ticket.found)
    return Observed(
        task=turn.task,
        hardware=choice.hardware,
        work=TokenWork(unread + turn.read_elsewhere, ticket.sampled),
        held=ticket.held,
        found=ticket.found,
        # What others have read belongs to the task, and says nothing of this hardware.
        prefill_s=None if turn.read_elsewhere else prefill_s,
        decode_s=decode_s,
    )
