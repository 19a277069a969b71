"""Random faults for a cluster on hosts: resets, glitches, partitions, losses of power.

- Brief faults (a reset, a glitch, a loss of the head) follow each other with a pause, so that no
  two of them add up to a fence. Fatal ones of workers go on beside them.
- What may fail is written down: a host that lost power or was cut off for longer than its fence.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from random import Random

from msgspec import Struct

from artangram_bench.hostcluster import HostCluster
from artangram_bench.hosts import Host

REST_S = 6.0
"""After a brief fault: an agent dials again within 5 s."""
MARGIN_S = 5.0
"""Of the orchestrator, beyond the fence."""
LATE_S = 40.0
"""A failure may be reported this long after a node is given up, on a busy machine."""


class FaultName(StrEnum):
    RESET = "connection resets"
    GLITCH = "glitches of a host"
    HEAD_GLITCH = "glitches of the head"
    PARTITION = "partitions beyond the fence"
    POWER = "power losses of a host"
    HEAD_POWER = "power losses of the head"


class Window(Struct, frozen=True, kw_only=True):
    """What runs on a host may fail in this time."""

    host: str
    from_s: float
    until_s: float


class Relay:
    """Between agents and the head: connections can be reset without a word to either program."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._writers: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    def reset(self, rng: Random) -> None:
        """End some connections, at least one of them."""
        open_ones = list(self._writers.values())
        for writers in rng.sample(open_ones, rng.randint(min(1, len(open_ones)), len(open_ones))):
            for writer in writers:
                writer.transport.abort()

    @asynccontextmanager
    async def listening(self, host: str) -> AsyncIterator[int]:
        """Carry connections while the block lasts; gives the port."""
        server = await asyncio.start_server(self._accept, host, 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in list(self._writers):
                task.cancel()
            await asyncio.gather(*self._writers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._writers[task] = [writer]
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        for writer in self._writers.pop(task):
            writer.transport.abort()
        if not task.cancelled():
            task.exception()  # Looked at: connections end in many ways here.

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection(*self._to)
        task = asyncio.current_task()
        assert task is not None
        self._writers[task].append(away)
        ways = [
            asyncio.ensure_future(_pump(reader, away)),
            asyncio.ensure_future(_pump(there, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


class Faults:
    """Makes them happen until it is cancelled; `calm` ends those under way and mends all."""

    def __init__(
        self,
        cluster: HostCluster,
        relay: Relay,
        *,
        fence_s: float,
        rng: Random,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._relay = relay
        self._fence_s = fence_s
        self._rng = rng
        self._brief = asyncio.Lock()
        self._down: set[str] = set()
        self._fatal: set[asyncio.Task[None]] = set()
        #: When which fault began.
        self.history: list[str] = []
        self.has_done_first = False
        self.counts: dict[FaultName, int] = dict.fromkeys(FaultName, 0)
        self.windows: list[Window] = []
        self.head_away_s: list[float] = []

    async def go_on(self, *, every_s: float, first: list[FaultName]) -> None:
        """Each of `first` in turn, then random ones for ever."""
        names = list(FaultName)
        weights = [40, 20, 10, 8, 12, 6]
        for name in first:
            await self._begin(name)
            await asyncio.sleep(every_s)
        await asyncio.gather(*self._fatal)
        self.has_done_first = True
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / every_s))
            await self._begin(self._rng.choices(names, weights)[0])

    async def calm(self) -> None:
        """Let what was begun end."""
        async with self._brief:
            await asyncio.gather(*self._fatal)

    def may_fail(self, host: str, at: float) -> bool:
        return any(w.host == host and w.from_s <= at <= w.until_s for w in self.windows)

    async def _begin(self, name: FaultName) -> None:
        up = [worker for worker in self._cluster.workers if worker.name not in self._down]
        if not up and name not in (FaultName.HEAD_GLITCH, FaultName.HEAD_POWER):
            return
        self.counts[name] += 1
        self.history.append(f"{self._clock():.1f} {name}")
        match name:
            case FaultName.RESET:
                self._relay.reset(self._rng)
            case FaultName.GLITCH:
                await self._glitch(self._rng.choice(up))
            case FaultName.HEAD_GLITCH:
                await self._glitch(self._cluster.head)
            case FaultName.HEAD_POWER:
                await self._lose_head()
            case FaultName.PARTITION | FaultName.POWER:
                worker = self._rng.choice(up)
                self._down.add(worker.name)
                deed = self._cut_off if name is FaultName.PARTITION else self._lose
                task = asyncio.ensure_future(deed(worker))
                self._fatal.add(task)

    async def _glitch(self, host: Host) -> None:
        async with self._brief:
            host.cut()
            await asyncio.sleep(self._rng.uniform(2.0, 5.0))
            host.heal()
            await asyncio.sleep(REST_S)

    async def _lose_head(self) -> None:
        async with self._brief:
            head, began_at = self._cluster.head, time.monotonic()
            self._may_fail(["cpu-0", head.name], began_at, 0.0)
            await asyncio.to_thread(head.lose_power)
            await asyncio.sleep(self._rng.uniform(0.2, 2.0))
            await asyncio.to_thread(self._cluster.start_head)
            away_s = time.monotonic() - began_at
            self.head_away_s.append(away_s)
            self._may_fail(["cpu-0", head.name], began_at, away_s)
            if away_s + REST_S > self._fence_s:
                self._may_fail([w.name for w in self._cluster.workers], began_at, away_s)
            await asyncio.sleep(REST_S)

    async def _cut_off(self, worker: Host) -> None:
        lasts_s = self._fence_s + MARGIN_S + self._rng.uniform(1.0, 5.0)
        self._may_fail([worker.name], time.monotonic(), lasts_s)
        worker.cut()
        await asyncio.sleep(lasts_s)
        worker.heal()
        await asyncio.sleep(REST_S)
        self._down.discard(worker.name)

    async def _lose(self, worker: Host) -> None:
        off_s = self._rng.uniform(0.5, 10.0)
        self._may_fail([worker.name], time.monotonic(), off_s)
        await asyncio.to_thread(worker.lose_power)
        await asyncio.sleep(off_s)
        self._cluster.begin_agent(worker)
        await asyncio.sleep(2 * REST_S)
        self._down.discard(worker.name)

    def _may_fail(self, hosts: list[str], from_s: float, lasts_s: float) -> None:
        until_s = from_s + lasts_s + self._fence_s + MARGIN_S + LATE_S
        self.windows += [Window(host=host, from_s=from_s, until_s=until_s) for host in hosts]
