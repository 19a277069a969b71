"""Samples all tokens: replicas in hardware classes, and sessions that are routed to them.

- A turn whose replica dies or is removed continues elsewhere from the tokens it has; its session
  only takes longer.
- If configured, one replica reads the prompt of a turn and another one answers it (`prefill`).
- With learned affinity a session begins when a replica has room for it (`firsts`).
- Without a replica a turn waits for one; its caller's deadline is the only limit.
- A replica that stalls (`watchdog`) is given up, as if it had died.
- Replicas come and go at any time. The code that made an engine closes it; the gateway never does.
- All of it runs on one event loop, on the loop's time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, contextmanager

from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import ANY, DEFAULT, Auto, Choice, Declared, Router
from artangram.core.rollout.costs import Rates
from artangram.core.rollout.split import NEVER, Splits, Splitter
from artangram.core.rollout.workingset import FEW_TURNS
from artangram.gateway.counters import Counters, Fallback
from artangram.gateway.engines.protocol import (
    Engine,
    EngineGone,
    Finish,
    FinishReason,
    TokenChunk,
)
from artangram.gateway.firsts import FirstTurns
from artangram.gateway.prefill import PrefilledPrompt, Prefills
from artangram.gateway.replica import EngineReplica, PendingTurn, observed
from artangram.gateway.session import Session
from artangram.gateway.turn import Turn
from artangram.gateway.watchdog import StallLimits, Watchdog
from artangram.models.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

MOST_IDLE_ATTEMPTS = 8
"""Replicas in a row that may end a turn without a token before the turn fails."""

EVERYWHERE = Declared(tasks={DEFAULT: (ANY,)})


class ContextFull(BadInput):
    """The prompt leaves no replica any room for an answer."""


class Gateway:
    """See the module. Calls `on_lost` for replicas that died or were given up."""

    def __init__(
        self,
        *,
        affinity: Declared | Auto = EVERYWHERE,
        split: Splits = NEVER,
        rates: Mapping[str, Rates] | None = None,
        on_lost: Callable[[Engine, EngineGone], None] | None = None,
        stalls: StallLimits | None = None,
    ) -> None:
        self.router = Router(affinity, rates=rates)
        self.counters = Counters()
        self._on_lost = on_lost
        splitter = Splitter(split, costs=self.router.costs)
        self._halves = Prefills(splitter, self.counters, serve=self._serving)
        self._replicas: dict[str, EngineReplica] = {}
        self._sessions: dict[str, Session] = {}
        self._opened = 0
        self._changed = asyncio.Event()
        self._firsts = FirstTurns(self._may_begin, self.counters)
        self._told: set[Fallback] = set()
        self._watchdog = Watchdog(
            stalls or StallLimits(), self.router.speeds, on_stall=self._on_stall
        )

    def __repr__(self) -> str:
        return f"<Gateway: {len(self._replicas)} replicas, {len(self._sessions)} sessions>"

    @property
    def replicas(self) -> tuple[EngineReplica, ...]:
        return tuple(self._replicas.values())

    @property
    def sessions(self) -> Mapping[str, Session]:
        return self._sessions

    def add(self, engine: Engine, *, hardware: str = DEFAULT) -> None:
        """Send turns to `engine`, too."""
        if engine.name in self._replicas:
            raise BadInput("engine", f"{engine.name!r} is here already", "give it another name")
        self._replicas[engine.name] = EngineReplica(engine, hardware=hardware)
        self._wake()
        self._firsts.admit()

    async def remove(self, name: str) -> Engine:
        """Send no more turns to it; those that it has continue elsewhere."""
        replica = self._replicas.pop(name)
        self.router.lost(replica.hardware, replica=replica.name)
        await self._evict(replica)
        return replica.engine

    def give_up(self, name: str, why: str) -> None:
        """Treat the replica as dead: its turns continue elsewhere, and `on_lost` is called.

        Nothing happens if it is gone.
        """
        if (replica := self._replicas.get(name)) is not None:
            replica.engine.crash(why)
            self._lose(replica, EngineGone(f"{name}: {why}"))

    def hold(self, name: str) -> None:
        """Send no new turns to this replica until `release`; those that it has continue."""
        self._replicas[name].is_held = True

    def release(self, name: str) -> None:
        self._replicas[name].is_held = False
        self._wake()
        self._firsts.admit()

    async def evict(self, name: str) -> None:
        """End the turns of this replica; they continue elsewhere, or here after `release`."""
        await self._evict(self._replicas[name])

    async def drained(self, name: str) -> None:
        """Return when the replica has no turns. Hold it first."""
        while name in self._replicas and self._replicas[name].turns:
            await self._change()

    def open(
        self, session_id: str, *, task: str = "", tokenizer: Tokenizer | None = None
    ) -> Session:
        """A new conversation. The caller closes it."""
        if session_id in self._sessions:
            raise BadInput("session", f"{session_id!r} is open", "close it first, or name another")
        self._opened += 1
        session = Session(self, session_id, number=self._opened, task=task, tokenizer=tokenizer)
        self._sessions[session_id] = session
        return session

    async def abort(self, session_id: str) -> None:
        """End the running turns of the session. Does nothing if there is no such session."""
        if session_id in self._sessions:
            await self._sessions[session_id].abort()

    async def aclose(self) -> None:
        """Close every session."""
        for session in list(self._sessions.values()):
            await session.close()

    def forget(self, session: Session) -> None:
        """For sessions: it has closed."""
        self._sessions.pop(session.id, None)
        for replica in self._replicas.values():
            replica.forget(session.id)
        self.router.ended(session.id)
        self._firsts.admit()

    async def abort_turn(self, turn: Turn) -> None:
        """For sessions: end this turn, wherever it is."""
        turn.is_aborted = True
        self._firsts.give_up(turn)
        self._wake()
        for replica in self.replicas:
            for request_id in replica.requests_of(turn):
                await self._abort_request(replica, request_id)

    async def serve(self, turn: Turn) -> AsyncGenerator[TokenChunk, None]:
        """For sessions: the chunks of a turn, on as many replicas as it takes."""
        turn.asked_at = asyncio.get_running_loop().time()
        self.counters.on_turn(turn.task, prompt=len(turn.prompt), is_first=turn.number == 0)
        idle = 0
        async with AsyncExitStack() as held:
            held.callback(self._count_end, turn)
            if turn.number == 0:
                await self._firsts.begin(turn)
            while turn.finish is None:
                ahead = await self._halves.read(turn, self._open_to(turn), held=held)
                found = await self._placed(turn, ahead)
                if found is None:
                    turn.finish = FinishReason.ABORT
                    break
                before = len(turn.sampled)
                async with aclosing(self._attempt(turn, *found, ahead=ahead)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                turn.attempts += 1
                idle = 0 if len(turn.sampled) > before else idle + 1
                if idle >= MOST_IDLE_ATTEMPTS:
                    raise EngineGone(f"{turn.id}: {idle} replicas ended it without a token")

    def _may_begin(self, turn: Turn) -> bool:
        now = asyncio.get_running_loop().time()
        candidates = [one.candidate(turn, now=now) for one in self.replicas if not one.is_held]
        return self.router.may_begin(turn.wanted, candidates)

    async def _attempt(
        self, turn: Turn, replica: EngineReplica, choice: Choice, *, ahead: PrefilledPrompt | None
    ) -> AsyncGenerator[TokenChunk, None]:
        """The turn on one replica, to its end or the replica's."""
        now = asyncio.get_running_loop().time
        request = turn.request(max_context=replica.engine.max_context)
        cache = self._halves.taken(turn, ahead, replica)
        with (
            self._serving(turn, replica, choice, request_id=request.id) as ticket,
            self._learning(turn, ticket, choice),
        ):
            async with aclosing(replica.stream(request, cache=cache)) as items:
                async for item in items:
                    if ahead is not None:
                        await ahead.drop()
                    if isinstance(item, TokenChunk):
                        turn.take(item)
                        replica.took(ticket, item, now=now())
                        ticket.is_held_up = True
                        yield item
                        ticket.is_held_up = False
                    else:
                        if cache is None:
                            self._count_prefix(turn, ticket, choice, found=item.found)
                        self._on_finish(turn, finish=item)
                        return
            raise EngineGone(f"{replica.name}: the stream of {request.id} ended without a finish")
        turn.end_if_complete()

    @contextmanager
    def _serving(
        self, turn: Turn, replica: EngineReplica, choice: Choice, *, request_id: str
    ) -> Iterator[PendingTurn]:
        """The turn is on the replica while the block lasts; a replica that dies ends the block."""
        self._watchdog.watch(replica)
        by_replica = self.counters.by_replica
        by_replica[replica.name] = by_replica.get(replica.name, 0) + 1
        now = asyncio.get_running_loop().time()
        try:
            with replica.serving(turn, choice, request_id=request_id, now=now) as ticket:
                self._firsts.admit()  # The next one may have room, too.
                yield ticket
        except EngineGone as error:
            self._lose(replica, error)
        finally:
            self._wake()
            if replica.turns < FEW_TURNS:
                self._firsts.admit()

    @contextmanager
    def _learning(self, turn: Turn, ticket: PendingTurn, choice: Choice) -> Iterator[None]:
        """Learn from a turn that ends in the block, or that a stop text ends: that closes it."""
        try:
            yield
        finally:
            if turn.finish not in (None, FinishReason.ABORT):
                self.router.learn(observed(turn, ticket, choice))

    def _count_prefix(
        self, turn: Turn, ticket: PendingTurn, choice: Choice, *, found: int | None
    ) -> None:
        if found is not None:
            ticket.found = found
            expected = ticket.asked - choice.work.prefill
            self.counters.on_prefix(turn.task, asked=ticket.asked, expected=expected, found=found)

    def _on_finish(self, turn: Turn, *, finish: Finish) -> None:
        if finish.reason is not FinishReason.ABORT:
            turn.finish = finish.reason
        elif turn.is_aborted:
            turn.finish = FinishReason.ABORT
        else:  # The replica was cleared; the turn continues elsewhere.
            turn.end_if_complete()

    async def _placed(
        self, turn: Turn, ahead: PrefilledPrompt | None
    ) -> tuple[EngineReplica, Choice] | None:
        """The next replica of the turn, as soon as there is one; `None` if the turn is aborted."""
        loop = asyncio.get_running_loop()
        while not turn.is_aborted:
            if (found := self._place(turn, ahead)) is not None:
                turn.goes_on(loop.time())
                return found
            if turn.waiting_since is None:
                self.counters.waits += 1
                turn.waits(loop.time())
            await self._change()
        turn.goes_on(loop.time())
        return None

    def _place(
        self, turn: Turn, ahead: PrefilledPrompt | None
    ) -> tuple[EngineReplica, Choice] | None:
        open_ones = self._open_to(turn)
        if ahead is not None:
            choice = self._halves.writer(turn, ahead, open_ones)
        else:
            now = asyncio.get_running_loop().time()
            candidates = [replica.candidate(turn, now=now) for replica in open_ones]
            choice = self.router.choose(turn.wanted, candidates)
        if choice is None:
            return None
        self._tell(turn.task, choice)
        if choice.reread:
            self.counters.rerouted += 1
            self.counters.reread_tokens += choice.reread
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s: %s", turn.id, choice.explained)
        return self._replicas[choice.replica], choice

    def _open_to(self, turn: Turn) -> list[EngineReplica]:
        """The replicas that could take it now. Raises `ContextFull` when none ever could."""
        roomy = [r for r in self._replicas.values() if r.engine.max_context > turn.num_tokens]
        if self._replicas and not roomy:
            most = max(r.engine.max_context for r in self._replicas.values())
            problem = f"has {turn.num_tokens} tokens; the context is {most} with the answer"
            raise ContextFull("prompt", problem, "shorten it")
        return [replica for replica in roomy if not replica.is_held]

    def _tell(self, task: str, choice: Choice) -> None:
        if choice.instead_of:
            fallback = Fallback(task, choice.instead_of, choice.hardware)
            counted = self.counters.fallbacks
            counted[fallback] = counted.get(fallback, 0) + 1
            # Loud once, until the preferred class is back.
            level = logging.DEBUG if fallback in self._told else logging.WARNING
            self._told.add(fallback)
            logger.log(level, "%s: no replica of its class", fallback)
        elif self._told:
            self._told -= {told for told in self._told if told.task == task}
        if choice.spilled_from:
            spill = Fallback(task, choice.spilled_from, choice.hardware)
            self.counters.spills[spill] = self.counters.spills.get(spill, 0) + 1

    def _lose(self, replica: EngineReplica, error: EngineGone) -> None:
        if self._replicas.get(replica.name) is not replica:
            return  # Another of its turns was here first.
        del self._replicas[replica.name]
        self.router.lost(replica.hardware, replica=replica.name)
        self.counters.lost += 1
        logger.warning("replica %s is gone: %s", replica.name, error)
        if self._on_lost is not None:
            self._on_lost(replica.engine, error)

    def _on_stall(self, replica: EngineReplica, silent_s: float) -> None:
        self.counters.stalled += 1
        replica.on_stall()
        why = f"it has {replica.turns} turns and gave no token for {silent_s:.0f} s"
        replica.engine.crash(why)  # Even if it was removed: it may still hold turns.
        self.give_up(replica.name, why)

    async def _evict(self, replica: EngineReplica) -> None:
        for request_id in replica.request_ids:
            await self._abort_request(replica, request_id)

    async def _abort_request(self, replica: EngineReplica, request_id: str) -> None:
        try:
            await replica.engine.abort(request_id)
        except EngineGone as error:
            self._lose(replica, error)

    def _count_end(self, turn: Turn) -> None:
        self.counters.on_sampled(turn.task, len(turn.sampled))
        self.counters.moves += max(0, turn.attempts - 1)
        if turn.finish is None:
            self.counters.failed += 1
        elif turn.finish is FinishReason.ABORT:
            self.counters.aborted += 1
        else:
            self.counters.replies += 1

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        """Return when replicas came or went, or a turn ended."""
        await self._changed.wait()
