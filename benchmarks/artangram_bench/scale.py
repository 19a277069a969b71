"""How does the orchestrator bear a thousand nodes and a hundred thousand trajectories?

- Agents are fakes in another process that speak the real protocol over TCP and end every run at
  once; the orchestrator, its journal on disk and its callers are real.
- The same number of actions goes through a cluster of one node with its share of the trajectories,
  then through all. CPU is that of this process: callers, decisions, links and journal.
- A stall is CPU time that the loop's thread spent without a turn of the loop, which a busy machine
  does not lengthen. Status is asked for in between, as a scrape of the metrics does. Garbage is
  collected as `artangram up` does.
"""

import asyncio
import gc
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, thread_time
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.ids import TrajectoryId
from artangram.managers.machine import allow_open_files
from artangram.managers.roster import Roster
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.garbage import old_objects_aside
from artangram.orchestrator.joinednodes import JoinedNodes
from artangram.orchestrator.local import running
from artangram.orchestrator.records import Opening
from artangram.sandbox.fake import FakeProvider
from artangram_bench.result import Origin

TOKEN = "join-token"
CORES = 64
CALLERS = 512
STATUS_EVERY_S = 5.0
TURN_S = 0.005
RATIO_AT_MOST, STALL_MS_AT_MOST, PER_S_AT_LEAST = 2.0, 250.0, 6_700


class Regime(Struct, frozen=True, kw_only=True):
    """One size of the cluster."""

    nodes: int
    trajectories: int
    actions: int
    joined_s: float
    """Until all nodes were there."""
    cpu_us: float
    """Of this process for an action, its journal included."""
    loop_us: float
    """Of the loop's thread alone."""
    per_core_s: float
    """Actions in a second of the loop's thread."""
    wall_per_s: float
    stall_ms: float
    """The longest: CPU time of the thread between two turns of its loop."""
    stall_wall_ms: float
    rss_mb: int


class ScaleFigures(Struct, frozen=True, kw_only=True):
    small: Regime
    large: Regime
    ratio: float
    """CPU for an action, large over small."""


class _Stalls:
    """The longest time that the loop was held, as CPU time and by the clock."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0
        self._last = thread_time(), perf_counter()
        self._timer: asyncio.TimerHandle | None = None
        self._turn()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        now = thread_time(), perf_counter()
        self.cpu_s = max(self.cpu_s, now[0] - self._last[0])
        self.wall_s = max(self.wall_s, now[1] - self._last[1] - TURN_S)
        self._last = now
        self._timer = asyncio.get_running_loop().call_later(TURN_S, self._turn)


def scale(
    nodes: Annotated[int, typer.Option(help="Agents.", min=2)] = 1_000,
    trajectories: Annotated[int, typer.Option(help="Open at once.", min=2)] = 100_000,
    actions: Annotated[int, typer.Option(help="Measured in each regime.", min=1)] = 100_000,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """CPU per action, stalls and memory with a thousand agents and 100k trajectories."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress:
        progress.add_task("one node, then many")
        small = asyncio.run(measured(1, max(1, trajectories // nodes), actions))
        large = asyncio.run(measured(nodes, trajectories, actions))
    found = ScaleFigures(small=small, large=large, ratio=large.cpu_us / small.cpu_us)
    _print(output, found)
    output.json(origin.result("How does the orchestrator bear a thousand nodes?", found))


async def measured(nodes: int, trajectories: int, actions: int) -> Regime:
    """One regime in a cluster of its own."""
    allow_open_files()
    gc.collect()
    rng = random.Random(0)
    with TemporaryDirectory(prefix="artangram-scale-") as folder:
        async with old_objects_aside(), _cluster(Path(folder), nodes) as (backend, joined_s):
            names = [TrajectoryId(f"t-{number}") for number in range(trajectories)]
            await _each(names, lambda name: _open(backend, name))
            wanted = rng.choices(names, k=actions)
            await _each(wanted[: actions // 10], lambda name: _act(backend, name))
            looking, stalls = asyncio.create_task(_look(backend)), _Stalls()
            began = process_time(), thread_time(), perf_counter()
            await _each(wanted, lambda name: _act(backend, name))
            cpu_s, loop_s, wall_s = (
                now - then
                for now, then in zip(
                    (process_time(), thread_time(), perf_counter()), began, strict=True
                )
            )
            stalls.stop()
            looking.cancel()
            await asyncio.wait({looking})
            return Regime(
                nodes=nodes,
                trajectories=trajectories,
                actions=actions,
                joined_s=joined_s,
                cpu_us=1e6 * cpu_s / actions,
                loop_us=1e6 * loop_s / actions,
                per_core_s=actions / loop_s,
                wall_per_s=actions / wall_s,
                stall_ms=1e3 * stalls.cpu_s,
                stall_wall_ms=1e3 * stalls.wall_s,
                rss_mb=_rss_mb(),
            )


@asynccontextmanager
async def _cluster(folder: Path, nodes: int) -> AsyncIterator[tuple[Embedded, float]]:
    """The head's own node is too small for any trajectory."""
    async with running(state_dir=folder, provider=FakeProvider(), cores=1, memory_mb=1) as (
        orchestrator,
        _,
    ):
        roster = Roster(
            JoinedNodes(orchestrator.executor), token=TOKEN, now=orchestrator.now, silence_s=60.0
        )
        port = await roster.open("127.0.0.1", 0, tls=None)
        words = ("-m", "artangram_bench.scale_agents", str(port), TOKEN, str(nodes), str(CORES))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        began_at = perf_counter()
        agents = await asyncio.create_subprocess_exec(sys.executable, *words, env=environ)
        try:
            while len(orchestrator.status().nodes) <= nodes:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            yield Embedded(orchestrator), perf_counter() - began_at
        finally:
            agents.kill()
            await agents.wait()
            await roster.close()


async def _each(names: list[TrajectoryId], act: Callable[[TrajectoryId], Awaitable[None]]) -> None:
    """`CALLERS` at once."""
    left = iter(names)

    async def caller() -> None:
        for name in left:
            await act(name)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def _open(backend: Embedded, name: TrajectoryId) -> None:
    await backend.open(Opening(trajectory=name, memory_mb=64))
    await _act(backend, name)


async def _act(backend: Embedded, name: TrajectoryId) -> None:
    result = await backend.run(RunRequest(trajectory=name, argv=("true",), kind="noop"))
    assert result.ok, result.reason


async def _look(backend: Embedded) -> None:
    while True:
        await asyncio.sleep(STATUS_EVERY_S)
        await backend.status()


def _rss_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _print(output: Printer, found: ScaleFigures) -> None:
    output.table(
        f"CPU of an action: {found.ratio:.2f}x that of one node (goal {RATIO_AT_MOST:g}x)",
        ["nodes", "trajectories", "CPU us", "loop us", "per core s", "stall ms", "RSS MB"],
        [
            [
                str(one.nodes),
                str(one.trajectories),
                f"{one.cpu_us:.0f}",
                f"{one.loop_us:.0f}",
                f"{one.per_core_s:.0f}",
                f"{one.stall_ms:.0f}",
                str(one.rss_mb),
            ]
            for one in (found.small, found.large)
        ],
    )
    output.console.print(
        f"goals: {PER_S_AT_LEAST} actions in a second of a core, no stall above "
        f"{STALL_MS_AT_MOST:g} ms"
    )
