"""The engines of a run: started, brought up to date, and started again when they die.

- An engine enters service only with the current version, from files that were checked, and after
  it reports that version. One that was started while the trainer went on loads the newest first.
- A slot whose engine cannot be started is tried again for as long as others serve.
"""

import asyncio
import logging
from collections.abc import Iterable

from artangram.aio import uncancelled
from artangram.core.rollout.weights import Versions
from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import Engine, EngineGone
from artangram.pipeline.engines import EngineSlot
from artangram.weights import Pull, check_version, load_version

logger = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Failed starts in a row before the run gives up, if no other engine serves."""
LONGEST_S = 60.0
"""Between two tries to start one."""


class EngineFleet:
    """See the module. Owns its engines; the gateway only sends to them."""

    def __init__(self, *, versions: Versions, pull: Pull, gateway: Gateway) -> None:
        self._versions = versions
        self._pull = pull
        self._gateway = gateway
        self._engines: dict[str, Engine] = {}
        self._slots: dict[str, EngineSlot] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._made = 0
        self.lost = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises when no engine can be started any more."""

    def __repr__(self) -> str:
        return f"<EngineFleet: {len(self._engines)} engines, {self.lost} lost>"

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Those that were started and not lost."""
        return tuple(self._engines.values())

    async def open(self, slots: Iterable[EngineSlot]) -> None:
        """Start an engine in each, all at once. Raises what the first failure raised."""
        await asyncio.gather(*(self._add(slot) for slot in slots))

    def on_lost(self, engine: Engine, error: EngineGone) -> None:
        """For the gateway: this one died, so another takes its place."""
        self.lost += 1
        logger.warning("engine %s is gone (%s); starting another", engine.name, error)
        running = asyncio.create_task(self._replace(engine))
        self._starting.add(running)
        running.add_done_callback(self._starting.discard)

    async def aclose(self) -> None:
        for running in list(self._starting):
            running.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        for name in list(self._engines):
            await uncancelled(self._engines.pop(name).aclose())
        self.failed.cancel()

    async def _replace(self, lost: Engine) -> None:
        if self._engines.pop(lost.name, None) is not None:
            await lost.aclose()
        slot, failures, why = self._slots.pop(lost.name), 0, ""
        while failures < MOST_FAILURES or self._engines:
            try:
                await self._add(slot)
                return
            except Exception as error:  # noqa: BLE001
                # The next try may find another machine, or newer weights.
                logger.warning("no engine of %s could be started: %r", slot.hardware, error)
                why = str(error)
                await asyncio.sleep(min(2.0**failures, LONGEST_S))
                failures += 1
        if not self.failed.done():
            text = f"no engine could be started, {failures} times; the last time: {why}"
            self.failed.set_exception(EngineGone(text))

    async def _add(self, slot: EngineSlot) -> None:
        self._made += 1
        name, version = f"engine-{self._made}", self._versions.current
        self._versions.hold(version, name)
        try:
            engine = await slot.start(name, version, await self._pull(name, version))
            try:
                check_version(engine, version)
                while version < self._versions.current:
                    version = await self._caught_up(engine)
            except BaseException:
                await uncancelled(engine.aclose())
                raise
            self._engines[name], self._slots[name] = engine, slot
            self._gateway.add(engine, hardware=slot.hardware)
        finally:
            for held in range(version + 1):
                self._versions.let_go(held, name)

    async def _caught_up(self, engine: Engine) -> int:
        version = self._versions.current
        self._versions.hold(version, engine.name)
        await load_version(engine, version, await self._pull(engine.name, version))
        return version
