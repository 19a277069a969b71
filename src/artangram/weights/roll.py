"""Bring a new version to the engines, one after the other, while the others keep serving.

- A replica first pulls the version to where it is, and keeps sampling meanwhile; only the swap of
  the weights stops it. `RollReport` tells the two apart.
- All weights of a replica change or none: its engine promises it, and what it says afterwards is
  checked. A replica that fails or takes too long is taken out of service, and reported.
- A version that is itself bad (a corrupt or missing file) is refused, and no replica blamed.
- The modes (`core.weights.Update`) say what becomes of requests that run on it meanwhile.
- A version is held while a replica pulls it, so it is not retired under a reader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.core.rollout.weights import Update, Versions
from artangram.weights.manifest import BadVersion
from artangram.weights.store import WeightStore

Pull = Callable[[str, int], Awaitable[Path]]
"""Bring a version to a replica; the directory is where its engine finds it."""


class EngineStats(Protocol):
    @property
    def version(self) -> int: ...


class WeightsTarget(Protocol):
    """What is needed of an engine."""

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def load(self, version: int, path: Path) -> None: ...

    def stats(self) -> EngineStats: ...


class RollTarget(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def engine(self) -> WeightsTarget: ...


class RollTargets(Protocol):
    """The replicas in service. `artangram.gateway.Gateway` is one."""

    @property
    def replicas(self) -> Sequence[RollTarget]: ...

    def hold(self, name: str) -> None: ...

    def release(self, name: str) -> None: ...

    async def evict(self, name: str) -> None: ...

    async def drained(self, name: str) -> None: ...

    def give_up(self, name: str, why: str) -> None: ...


class EngineUpdate(Struct, frozen=True, kw_only=True):
    """One replica's way to a version."""

    replica: str
    pull_s: float
    """While it went on sampling."""
    stopped_s: float
    """While it could not."""
    failed: str = ""
    """Why it was taken out of service; empty if it was not."""


class RollReport(Struct, frozen=True, kw_only=True):
    version: int
    swaps: tuple[EngineUpdate, ...]
    elapsed_s: float

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(swap.replica for swap in self.swaps if swap.failed)

    @property
    def accumulated_s(self) -> float:
        """What a stop of all replicas for all of it would have cost, in replica-seconds."""
        return sum(swap.pull_s + swap.stopped_s for swap in self.swaps)

    @property
    def exposed_s(self) -> float:
        """What it did cost, in replica-seconds."""
        return sum(swap.stopped_s for swap in self.swaps)


def verified_pull(store: WeightStore, *, reads_again: bool = False) -> Pull:
    """For engines on the store's machine: each reads the store, once every byte was checked.

    A check serves every later pull of that version, or with `reads_again` only those that ask
    while it is under way.
    """
    checks: dict[int, asyncio.Task[object]] = {}

    async def pull(replica: str, version: int) -> Path:
        known = checks.get(version)
        if known is None or (reads_again and known.done()):
            checks.clear()
            checks[version] = asyncio.create_task(asyncio.to_thread(store.verify, version))
        await asyncio.shield(checks[version])
        return store.path(version)

    return pull


async def load_version(engine: WeightsTarget, version: int, path: Path) -> None:
    """Swap the weights of an engine that stands still for it. Raises if it kept others."""
    await engine.pause()
    await engine.load(version, path)
    check_version(engine, version)
    await engine.resume()


def check_version(engine: WeightsTarget, version: int) -> None:
    """Raises `InfraFailed` unless `version` is live in the engine."""
    found = engine.stats().version
    if found != version:
        raise InfraFailed(f"was given version {version} and reports version {found}")


async def roll(
    fleet: RollTargets,
    version: int,
    *,
    pull: Pull,
    versions: Versions,
    mode: Update = Update.PAUSE,
    at_once: int = 1,
    limit_s: float = 600.0,
) -> RollReport:
    """Bring every replica that serves now to `version`, `at_once` at a time.

    Raises `BadVersion` when the version itself is bad: then no further replica is touched.
    """
    if at_once < 1:
        raise BadInput("at_once", f"{at_once} replicas never finish", "say 1 or more")
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    rolling = _Rolling(fleet, version, pull=pull, versions=versions, mode=mode, limit_s=limit_s)
    await asyncio.gather(*(rolling.work() for _ in range(at_once)))
    if rolling.bad is not None:
        raise rolling.bad
    return RollReport(version=version, swaps=tuple(rolling.swaps), elapsed_s=loop.time() - began_at)


class _Rolling:
    """One version on its way."""

    def __init__(
        self,
        fleet: RollTargets,
        version: int,
        *,
        pull: Pull,
        versions: Versions,
        mode: Update,
        limit_s: float,
    ) -> None:
        self._fleet = fleet
        self._version = version
        self._pull = pull
        self._versions = versions
        self._mode = mode
        self._limit_s = limit_s
        self._left = list(reversed(fleet.replicas))
        self.swaps: list[EngineUpdate] = []
        self.bad: BadVersion | None = None

    async def work(self) -> None:
        """Take one replica after the other, until none is left or the version is bad."""
        while self._left and self.bad is None:
            replica = self._left.pop()
            self._versions.hold(self._version, replica.name)
            try:
                self.swaps.append(await self._swap(replica))
            except BadVersion as error:
                self.bad = error
            finally:
                self._versions.let_go(self._version, replica.name)

    async def _swap(self, replica: RollTarget) -> EngineUpdate:
        loop = asyncio.get_running_loop()
        began_at = pulled_at = loop.time()
        stopped_s, failed = 0.0, ""
        try:
            async with asyncio.timeout(self._limit_s):
                path = await self._pull(replica.name, self._version)
            pulled_at = loop.time()
            # Uncancelled: nothing else would resume a replica that stopped half way.
            stopped_s = await uncancelled(self._exchange(replica, path))
        except BadVersion:
            raise
        except Exception as error:  # noqa: BLE001 (whatever an engine raises, it is out)
            failed = f"{type(error).__name__}: {error}"
            stopped_s = loop.time() - pulled_at
            self._fleet.give_up(replica.name, failed)
        return EngineUpdate(
            replica=replica.name,
            pull_s=pulled_at - began_at,
            stopped_s=stopped_s,
            failed=failed,
        )

    async def _exchange(self, replica: RollTarget, path: Path) -> float:
        """Swap the weights; how long the replica was stopped for it."""
        loop = asyncio.get_running_loop()
        if self._mode is not Update.PAUSE:
            self._fleet.hold(replica.name)
        if self._mode is Update.DRAIN:
            # As long as its turns take: they have limits of their own.
            await self._fleet.drained(replica.name)
        stopped_at = loop.time()
        async with asyncio.timeout(self._limit_s):
            if self._mode is Update.ABORT:
                await self._fleet.evict(replica.name)
            await load_version(replica.engine, self._version, path)
        if self._mode is not Update.PAUSE:
            self._fleet.release(replica.name)
        return loop.time() - stopped_at
