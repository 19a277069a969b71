"""Split turns: one replica reads the prompt (prefill), and another writes the answer (decode).

- If the prefill fails, the turn continues: the second replica reads the prompt itself. The prefill
  samples nothing, so no token can be lost.
- A cache is kept until the second replica has given its first token, or has ended.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Protocol

from msgspec import structs

from artangram.core.rollout.affinity import Choice
from artangram.core.rollout.costs import Candidate, Observed, TokenWork
from artangram.core.rollout.split import PrefillDecision, PrefillDecode, Splitter
from artangram.gateway.counters import Counters
from artangram.gateway.engines.protocol import Cache
from artangram.gateway.replica import EngineReplica, PendingTurn
from artangram.gateway.turn import Turn


class Serve(Protocol):
    """Keep the turn on a replica while the block lasts. The replica's death ends the block."""

    def __call__(
        self, turn: Turn, replica: EngineReplica, choice: Choice, *, request_id: str
    ) -> AbstractContextManager[PendingTurn]: ...


class PrefilledPrompt:
    """The cache of a prompt that one replica has read and another may take over."""

    def __init__(
        self,
        turn: Turn,
        reader: EngineReplica,
        reading: PrefillDecision,
        *,
        cache: Cache,
        held: AsyncExitStack,
    ) -> None:
        self.decode = reading.decode
        self.tokens = reading.reader.work.prefill
        """That had to be read."""
        self._turn = turn
        self._reader = reader
        self._cache = cache
        self._held = held

    def cache_for(self, replica: EngineReplica) -> Cache | None:
        """What this replica can take over; the reader has it anyway."""
        if replica is self._reader or replica.cache_kind != self._reader.cache_kind:
            return None
        return self._cache if replica.engine.stats().version == self._cache.version else None

    def candidate(self, replica: EngineReplica) -> Candidate:
        cache = self.cache_for(replica)
        now = asyncio.get_running_loop().time()
        taking = 0 if cache is None else cache.tokens
        return replica.candidate(self._turn, now=now, taking=taking)

    async def drop(self) -> None:
        """Drop the cache: it is not needed any more."""
        await self._held.aclose()


class Prefills:
    """See the module."""

    def __init__(self, splitter: Splitter, counters: Counters, *, serve: Serve) -> None:
        self._splitter = splitter
        self._counters = counters
        self._serve = serve

    async def read(
        self, turn: Turn, replicas: Sequence[EngineReplica], *, held: AsyncExitStack
    ) -> PrefilledPrompt | None:
        """Prefill the turn if it is to be split. The cache exists until `held` closes."""
        turn.read_elsewhere = 0.0
        reading = self._reading(turn, replicas)
        if reading is None:
            return None
        (reader,) = (one for one in replicas if one.name == reading.reader.replica)
        own = await held.enter_async_context(AsyncExitStack())
        cache = await self._read(turn, reader, reading.reader, held=own)
        if cache is None:
            self._counters.unsplit += 1
            return None
        return PrefilledPrompt(turn, reader, reading, cache=cache, held=own)

    def writer(
        self, turn: Turn, ahead: PrefilledPrompt, replicas: Sequence[EngineReplica]
    ) -> Choice | None:
        """The replica that takes the cache over."""
        candidates = [ahead.candidate(replica) for replica in replicas]
        return self._splitter.writer(turn.wanted, candidates, decode=ahead.decode)

    def taken(
        self, turn: Turn, ahead: PrefilledPrompt | None, replica: EngineReplica
    ) -> Cache | None:
        """The cache that the second replica takes over."""
        if ahead is None:
            return None
        cache = ahead.cache_for(replica)
        if cache is None:
            self._counters.unsplit += 1
        else:
            self._counters.splits += 1
            self._counters.split_bytes += cache.num_bytes
            turn.read_elsewhere = ahead.tokens
        return cache

    def _reading(self, turn: Turn, replicas: Sequence[EngineReplica]) -> PrefillDecision | None:
        rule = self._splitter.rule(turn.task)
        if rule is None or not replicas:
            return None
        now = asyncio.get_running_loop().time()
        halves = [one.half(turn, now=now) for one in replicas]
        reading = self._splitter.reading(turn.wanted, halves)
        if reading is None and isinstance(rule, PrefillDecode):
            self._counters.unsplit += 1
        return reading

    async def _read(
        self, turn: Turn, reader: EngineReplica, choice: Choice, *, held: AsyncExitStack
    ) -> Cache | None:
        assert reader.handover is not None, "only such are asked to read"
        request = turn.request(max_context=reader.engine.max_context)
        request = structs.replace(request, id=f"{request.id}/read")
        cache = None
        with self._serve(turn, reader, choice, request_id=request.id) as ticket:
            cache = await held.enter_async_context(reader.handover.handing(request))
        if cache is not None:
            reader.read(turn, cache)
            self._learn(turn, choice, ticket, cache=cache)
        return cache

    def _learn(self, turn: Turn, choice: Choice, ticket: PendingTurn, *, cache: Cache) -> None:
        self._splitter.learn(tokens=cache.tokens, seconds=cache.move_s)
        if ticket.is_alone:
            now = asyncio.get_running_loop().time()
            seen = Observed(
                task=turn.task,
                hardware=choice.hardware,
                work=TokenWork(choice.work.prefill, 0.0),
                prefill_s=now - ticket.started_at - cache.move_s,
            )
            self._splitter.costs.speeds.learn(seen)
