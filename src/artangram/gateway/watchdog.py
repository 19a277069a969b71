"""Finds stalled replicas: they have turns, but their engine reads and samples no token.

- A replica makes progress when its engine has read or sampled anything since the last check. Paused
  engines may be silent: the code that paused one limits the pause. So may engines whose tokens are
  not taken: there it is the reader of the stream that stalls.
- The limit follows from what the replica has to read and how fast its class is, with a minimum: a
  busy machine, or the first request of an engine that compiles, is not a stall.
- A turn that stalled one replica may be the cause itself, so the next one gets twice the time.
- Checks run only while there are turns, and do not delay them.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.rollout.costs import Speeds, TokenWork
from artangram.gateway.replica import EngineReplica

_LOOKS_PER_LIMIT = 4


class StallLimits(Struct, frozen=True, kw_only=True):
    """How long a replica with turns may go without a token."""

    steps: float = 10.0
    """Multiple of the usual time for reading its prompts and sampling one token."""
    least_s: float = 120.0
    """The limit is never shorter than this."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise BadInput(name, f"{getattr(self, name)} is no limit", "say more than 0")


class _Seen(Struct):
    """What a replica had done at the last check at which it had made progress, and when."""

    done: tuple[int, int]
    at: float


class Watchdog:
    """See the module. Calls `on_stall` with the replica and how many seconds it stalled."""

    def __init__(
        self,
        limits: StallLimits,
        speeds: Speeds,
        *,
        on_stall: Callable[[EngineReplica, float], None],
    ) -> None:
        self._limits = limits
        self._speeds = speeds
        self._on_stall = on_stall
        self._seen: dict[EngineReplica, _Seen] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, replica: EngineReplica) -> None:
        """It is about to get a turn."""
        if not replica.turns or replica not in self._seen:
            now = asyncio.get_running_loop().time()
            self._seen[replica] = _Seen(_done(replica), now)
        if self._timer is None:
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.least_s / _LOOKS_PER_LIMIT, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        self._seen = {replica: seen for replica, seen in self._seen.items() if replica.turns}
        for replica, seen in list(self._seen.items()):
            done = _done(replica)
            may_rest = replica.engine.stats().is_paused or not replica.owes
            if done != seen.done or may_rest:
                self._seen[replica] = _Seen(done, now)
            elif now - seen.at >= self._limit_s(replica):
                del self._seen[replica]
                self._on_stall(replica, now - seen.at)
        self._timer = None
        if self._seen:
            self._look_later()

    def _limit_s(self, replica: EngineReplica) -> float:
        rates = self._speeds.of(replica.hardware)
        usual_s = rates.service_s(TokenWork(replica.load.prefill, 1.0))
        return max(self._limits.least_s, self._limits.steps * usual_s) * 2.0**replica.stalls


def _done(replica: EngineReplica) -> tuple[int, int]:
    stats = replica.engine.stats()
    return stats.prompt_tokens, stats.sampled_tokens
