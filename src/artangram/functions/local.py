"""Runs functions in worker processes of this machine.

- A call whose worker dies is made again in another one: functions are pure. After `ATTEMPTS`
  workers it is the infrastructure that failed.
- A hedged call that is late gets a second copy where a worker is to spare; the first answer wins
  and the other copy is ended. A lease never waits for a copy, and both together never exceed the
  ceiling: see `workers`.
- Ending a call ends its workers, with whatever they started.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import NamedTuple

from artangram.aio import uncancelled
from artangram.core.durations import Durations
from artangram.core.errors import CallFailed, InfraFailed
from artangram.functions.function import FunctionSpec
from artangram.functions.hedging import QUANTILE, Budget, call_durations
from artangram.functions.inside.records import WorkerRequest
from artangram.functions.workers import FunctionWorker, Workers, a_fork_server
from artangram.link import LinkEnded

ATTEMPTS = 3
"""Workers that may die under one call. The scheduler repeats the call beyond that, if it may."""
PAUSE_S = 0.05
"""Before a further attempt: a fork server that died is noticed and replaced meanwhile."""


class WorkerGone(Exception):
    """The worker died before it answered."""


class _Answer(NamedTuple):
    outcome: bytes | CallFailed | InfraFailed
    run_s: float


_Copy = asyncio.Task[_Answer]


class LocalFunctions:
    """See `function.FunctionRunner`."""

    def __init__(self, *, ceiling: int, idle_s: float = 60.0) -> None:
        self._forkserver = a_fork_server()
        self.workers = Workers(self._forkserver, ceiling=ceiling, idle_s=idle_s)
        self.num_calls = 0
        self.num_hedges = 0
        self.num_hedges_won = 0
        self.num_workers_lost = 0
        self._durations: defaultdict[str, Durations] = defaultdict(call_durations)
        self._budget = Budget()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<LocalFunctions: {self.workers!r}, {self.num_hedges} hedges>"

    def expect(self, spec: FunctionSpec) -> None:
        """Have the module of a function imported before its first call."""
        self._forkserver.preload(spec.target.partition(":")[0])

    async def call(
        self,
        spec: FunctionSpec,
        body: bytes,
        *,
        hedged: bool = False,
        on_begun: Callable[[], None] = lambda: None,
    ) -> bytes:
        """See `FunctionRunner.call`."""
        request = WorkerRequest(spec.target, spec.memory_mb, body)
        self.num_calls += 1
        self._budget.earn()
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(attempt * PAUSE_S)
            if self._is_closed:
                raise InfraFailed(f"{spec.name}: the workers were closed")
            try:
                return await self._attempt(spec, request, hedged=hedged, on_begun=on_begun)
            except WorkerGone:
                self.num_workers_lost += 1
        raise InfraFailed(f"{spec.name}: {ATTEMPTS} workers died under it")

    async def aclose(self) -> None:
        self._is_closed = True
        self.workers.close()
        await uncancelled(self._forkserver.aclose())

    async def _attempt(
        self,
        spec: FunctionSpec,
        request: WorkerRequest,
        *,
        hedged: bool,
        on_begun: Callable[[], None],
    ) -> bytes:
        durations = self._durations[spec.name]
        late_s = durations.quantile(QUANTILE) if hedged else None
        worker = await self.workers.take()
        copies = {self._start(worker, request, on_begun): worker}
        try:
            if late_s is not None:
                done, _ = await asyncio.wait(copies, timeout=late_s)
                if not done:
                    copies.update(self._second(request))
            winner = await self._winner(copies)
        finally:
            for copy in copies:
                copy.cancel()
        self.num_hedges_won += copies[winner] is not worker
        answer = winner.result()
        durations.add(answer.run_s)
        return _checked(spec, answer)

    def _start(
        self, worker: FunctionWorker, request: WorkerRequest, on_begun: Callable[[], None]
    ) -> _Copy:
        copy = asyncio.create_task(_ask(worker, request, on_begun))
        copy.add_done_callback(partial(self._on_over, worker))
        return copy

    def _second(self, request: WorkerRequest) -> dict[_Copy, FunctionWorker]:
        """Another copy of a late call, if there is a worker to spare and it can be paid."""
        worker = self.workers.take_spare() if self._budget.spend() else None
        if worker is None:
            return {}
        self.num_hedges += 1
        copy = self._start(worker, request, lambda: None)
        self.workers.lend(worker, copy.cancel)
        return {copy: worker}

    async def _winner(self, copies: dict[_Copy, FunctionWorker]) -> _Copy:
        """The copy that answered first. Raises `WorkerGone` when all are gone."""
        pending = set(copies)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for copy in done:
                if not copy.cancelled() and copy.exception() is None:
                    return copy
            for copy in pending:
                self.workers.promote(copies[copy])
        raise WorkerGone

    def _on_over(self, worker: FunctionWorker, copy: _Copy) -> None:
        """Not inside the copy: one that is cancelled before its first step never gets there."""
        if not copy.cancelled() and copy.exception() is None:
            self.workers.give_back(worker)
        else:
            self.workers.end(worker)
            worker.close()


async def _ask(
    worker: FunctionWorker, request: WorkerRequest, on_begun: Callable[[], None]
) -> _Answer:
    outcome: bytes | CallFailed | InfraFailed
    try:
        await worker.start()
        on_begun()
        began_at = perf_counter()
        outcome = await worker.ask(request)
    except (CallFailed, InfraFailed) as error:
        outcome = error
    except (LinkEnded, OSError) as error:
        raise WorkerGone from error
    return _Answer(outcome, perf_counter() - began_at)


def _checked(spec: FunctionSpec, answer: _Answer) -> bytes:
    match answer.outcome:
        case CallFailed() as error:
            raise CallFailed(f"{spec.name} raised:\n{error}")
        case InfraFailed() as error:
            raise InfraFailed(f"a worker cannot import {spec.target}:\n{error}")
        case body:
            return body
