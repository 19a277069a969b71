"""Makes leases of calls real: what has no sandbox, keeps nothing, and answers once.

- Every `start` is followed by exactly one `RunResult`, however the call ended.
- A call lives in this process and with it: after a restart it is made again if it may be, else it
  has failed. Nothing is left behind that would have to be found again.
- Who carries a call out (`Carrier`) raises `CallFailed` for what the callee did, `InfraFailed` for
  what happened under it, and `TimeoutError` when the call's own time is up.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from artangram.aio import Background
from artangram.apis.errors import TurnedAway
from artangram.core.errors import CallFailed, InfraFailed
from artangram.core.scheduling.lease import Lease
from artangram.core.scheduling.records import Outcome
from artangram.managers.agent import RunId, RunResult
from artangram.managers.call import Call, CallResult


class CallProgress(Protocol):
    """What a carrier tells while it works."""

    def began(self) -> None:
        """The lease is real now: what was restored or started is there, and the call begins."""
        ...


class Carrier(Protocol):
    """Carries out the calls of one kind; see the module for what it raises."""

    async def carry_out(
        self, lease: Lease, call: Call, *, progress: CallProgress
    ) -> CallResult: ...

    async def aclose(self) -> None: ...


class _Under:
    """A call under way."""

    def __init__(self, run: RunId, now: Callable[[], float]) -> None:
        self.run = run
        self.now = now
        self.began_at: float | None = None
        self.ended = RunResult(run=run, outcome=Outcome.CANCELLED)

    def began(self) -> None:
        self.began_at = self.now()


class CallManager:
    """Starts calls and tells how they ended, whoever carries them out."""

    def __init__(
        self,
        carriers: Mapping[type, Carrier],
        *,
        now: Callable[[], float],
        on_ended: Callable[[RunResult], None],
    ) -> None:
        self._carriers = carriers
        self._now = now
        self._on_ended = on_ended
        self._running: dict[RunId, asyncio.Task[None]] = {}
        self._background = Background(self._on_error)

    def __repr__(self) -> str:
        return f"<CallManager: {len(self._running)} under way>"

    def start(self, lease: Lease, call: Call, *, timeout_s: float | None) -> None:
        """Make `lease` real and the call on it; `timeout_s` limits the call, not the making."""
        under = _Under(RunId(lease.action_id, lease.attempt), self._now)
        task = self._background.start(self._run(under, lease, call, timeout_s))
        self._running[under.run] = task
        task.add_done_callback(lambda _: self._tell(under))

    def stop(self, run: RunId) -> None:
        """End a call early, if it still runs. Its `RunResult` comes when it is gone."""
        task = self._running.get(run)
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        """End every call; nobody hears of it. Carriers are their opener's."""
        self._on_ended = lambda ended: None
        await self._background.close()

    async def _run(self, under: _Under, lease: Lease, call: Call, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                progress = _Limited(under, limit, timeout_s)
                carrier = self._carriers[type(call)]
                result = await carrier.carry_out(lease, call, progress=progress)
            under.ended = _ended(under, Outcome.SUCCEEDED, result=result)
        except CallFailed as error:
            under.ended = _ended(under, Outcome.FAILED, reason=str(error))
        except TimeoutError:
            why = "it took too long" if timeout_s is None else f"it ran longer than {timeout_s:g} s"
            under.ended = _ended(under, Outcome.TIMED_OUT, reason=why)
        except InfraFailed as error:
            under.ended = _ended(under, Outcome.INFRA_FAILED, reason=str(error))
            if isinstance(error, TurnedAway):
                under.ended = structs.replace(under.ended, turned_away=True)
        except Exception as error:
            under.ended = _ended(under, Outcome.INFRA_FAILED, reason=repr(error))
            raise

    def _tell(self, under: _Under) -> None:
        del self._running[under.run]
        self._on_ended(under.ended)

    def _on_error(self, error: BaseException) -> None:
        """A carrier that raised what none may raise is a defect of ours; it must be seen."""
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": f"{self!r} failed", "exception": error})


class _Limited:
    """Progress that starts the clock of the call's own limit."""

    __slots__ = ("_limit", "_timeout_s", "_under")

    def __init__(self, under: _Under, limit: asyncio.Timeout, timeout_s: float | None) -> None:
        self._under = under
        self._limit = limit
        self._timeout_s = timeout_s

    def began(self) -> None:
        self._under.began()
        if self._timeout_s is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)


def _ended(
    under: _Under, outcome: Outcome, *, reason: str = "", result: CallResult | None = None
) -> RunResult:
    """What callees say may be no Unicode; an end that no journal can write is everybody's."""
    if result is not None and result.headers:
        headers = {_text(name): _text(value) for name, value in result.headers.items()}
        result = structs.replace(result, headers=headers)
    return RunResult(
        run=under.run,
        outcome=outcome,
        reason=_text(reason),
        began_at=under.began_at,
        answer=result,
    )


def _text(said: str) -> str:
    return said.encode(errors="replace").decode()
