"""Makes leases of calls real: a call has no sandbox, keeps nothing, and answers once.

- Every `start` is followed by exactly one `RunResult`, however the call ended.
- A call lives and ends with this process: after a restart it is made again if it may be repeated,
  else it has failed. It leaves nothing behind to be found again.
- A `Carrier` raises `CallFailed` for what the callee did, `InfraFailed` for what happened under it,
  and `TimeoutError` when the call's own time is up.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from artangram.aio import Background
from artangram.apis.limits import TurnedAway
from artangram.core.errors import CallFailed, InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.lease import Lease
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


class RunningCall:
    """A call under way, and the progress that its carrier tells."""

    __slots__ = ("_limit", "_now", "_timeout_s", "began_at", "ended", "run", "task")

    def __init__(self, run: RunId, now: Callable[[], float], timeout_s: float | None) -> None:
        self.run = run
        self._now = now
        self._timeout_s = timeout_s
        self._limit: asyncio.Timeout | None = None
        self.began_at: float | None = None
        self.ended = RunResult(run=run, outcome=Outcome.CANCELLED)
        self.task: asyncio.Task[None] | None = None

    def began(self) -> None:
        """Start the clock of the call's own limit."""
        self.began_at = self._now()
        if self._timeout_s is not None and self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    def cancel(self) -> None:
        """End the call early, if it still runs. Its `RunResult` comes when it is gone."""
        if self.task is not None:
            self.task.cancel()

    async def carry_out(self, carriers: Mapping[type, Carrier], lease: Lease, call: Call) -> None:
        try:
            carrier = carriers[type(call)]
            async with asyncio.timeout(None) as self._limit:
                answer = await carrier.carry_out(lease, call, progress=self)
            self._end(Outcome.SUCCEEDED, answer=_in_unicode(answer))
        except CallFailed as error:
            self._end(Outcome.FAILED, str(error))
        except TimeoutError:
            limit = self._timeout_s
            why = "it timed out" if limit is None else f"it ran longer than {limit:g} s"
            self._end(Outcome.TIMED_OUT, why)
        except InfraFailed as error:
            turned_away = isinstance(error, TurnedAway)
            self._end(Outcome.INFRA_FAILED, str(error), turned_away=turned_away)
        except Exception as error:
            self._end(Outcome.INFRA_FAILED, repr(error))
            raise

    def _end(
        self,
        outcome: Outcome,
        reason: str = "",
        *,
        answer: CallResult | None = None,
        turned_away: bool = False,
    ) -> None:
        self.ended = RunResult(
            run=self.run,
            outcome=outcome,
            reason=_text(reason),
            began_at=self.began_at,
            answer=answer,
            turned_away=turned_away,
        )


class CallManager:
    """Starts calls and tells how they ended, whichever carrier makes them."""

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
        self._background = Background(self._on_error)

    def __repr__(self) -> str:
        return f"<CallManager: {len(self._background)} under way>"

    def start(self, lease: Lease, call: Call, *, timeout_s: float | None) -> RunningCall:
        """Make `lease` real and the call on it; `timeout_s` limits the call, not the making."""
        running = RunningCall(RunId(lease.action_id, lease.attempt), self._now, timeout_s)
        work = running.carry_out(self._carriers, lease, call)
        running.task = self._background.start(work)
        running.task.add_done_callback(lambda _: self._on_ended(running.ended))
        return running

    async def aclose(self) -> None:
        """End every call without telling how it ended. Carriers are closed by their opener."""
        self._on_ended = lambda ended: None
        await self._background.close()

    def _on_error(self, error: BaseException) -> None:
        """A carrier raised what no carrier may raise: a defect of ours, which has to be seen."""
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": f"{self!r} failed", "exception": error})


def _in_unicode(answer: CallResult) -> CallResult:
    """A callee's headers may not be Unicode, and the journal could not write them as they are."""
    headers = {_text(name): _text(value) for name, value in answer.headers.items()}
    return structs.replace(answer, headers=headers) if headers else answer


def _text(said: str) -> str:
    return said.encode(errors="replace").decode()
