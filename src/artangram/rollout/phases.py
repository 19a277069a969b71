"""Time limits that count work and not waiting in line, and that nothing can outlive.

- `within` ends a phase that has worked for its limit. Time in lines is not work: sessions that wait
  for a replica and environments that wait for cores say so in `queued_s`, seconds over their life
  that grow while they wait. An environment without it counts as working all the time.
- Work that ignores its cancellation is left behind as a stray after a grace, so that it holds
  nothing up; strays are counted, and ended again when the rollout closes.
- An environment that blocks the event loop itself cannot be helped here.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from msgspec import Struct

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed

T = TypeVar("T")

_INSTANT_S = 1e-6
"""What is left of a limit below this is rounding."""


class PhaseLimits(Struct, frozen=True, kw_only=True):
    """Seconds of work, without queueing, that each phase of a trajectory may take."""

    reset_s: float = 300.0
    turn_s: float = 300.0
    """One answer of the environment."""
    generate_s: float = 600.0
    agent_s: float = 3600.0
    """A whole attempt of an agent that asks the model by itself, the model's answers included."""
    reward_s: float = 600.0
    close_s: float = 10.0
    """For cleaning up; what takes longer is left behind."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise BadInput(name, f"{getattr(self, name)} is no time", "say more than 0")


class TooLong(InfraFailed):
    """A phase worked longer than it may."""


class RunawayTasks:
    """Work that was told to end and did not."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[Any]] = set()
        self.count = 0
        """Ever left behind."""

    def __len__(self) -> int:
        return len(self._tasks)

    async def end(self, running: "asyncio.Task[Any]") -> None:
        """Cancel it; return when it has ended, or when the grace has."""
        if not running.done():
            running.cancel()
            await uncancelled(_settled(running, self._grace_s))
        if running.done():
            _look_at(running)
        else:
            self.count += 1
            self._tasks.add(running)
            running.add_done_callback(self._on_done)

    async def close(self) -> None:
        """One more try for each."""
        for running in self._tasks:
            running.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._grace_s)

    def _on_done(self, running: "asyncio.Task[Any]") -> None:
        self._tasks.discard(running)
        _look_at(running)


async def _settled(running: "asyncio.Task[Any]", grace_s: float) -> None:
    await asyncio.wait({running}, timeout=grace_s)


def _look_at(running: "asyncio.Task[Any]") -> None:
    """Read its exception: asyncio logs those that nothing reads."""
    if not running.cancelled():
        running.exception()


async def within(
    work: Coroutine[Any, Any, T], limit_s: float, *, of: object, what: str, strays: RunawayTasks
) -> T:
    """What `work` returns. Raises `TooLong` after `limit_s`, not counting time `of` was queued."""
    loop = asyncio.get_running_loop()
    running = loop.create_task(work)
    began_at, queued_s = loop.time(), _queued_s(of)
    try:
        while not running.done():
            used_s = loop.time() - began_at - (_queued_s(of) - queued_s)
            if limit_s - used_s < _INSTANT_S:
                raise TooLong(f"{what} worked for its limit of {limit_s:g} s")
            await asyncio.wait({running}, timeout=limit_s - used_s)
    finally:
        await strays.end(running)
    if running.cancelled():
        raise InfraFailed(f"{what} was cancelled from within")
    return running.result()


def _queued_s(of: object) -> float:
    """Seconds that `of` has waited in lines so far, if it says so with a `queued_s`."""
    return float(getattr(of, "queued_s", 0.0))
