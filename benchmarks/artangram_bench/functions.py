"""How do functions behave in a burst from zero, with slow workers, and when workers are killed?

- All calls go through a cluster: submitted, leased, run, reported. Its sandboxes are fakes, since
  no command runs.
- Slow workers are drawn anew in every wave, so that hedging is not helped by ending them. Waves
  with and without it alternate.
- Times are seen by the caller; the machine's cores are shared by all workers.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Annotated, Any

import typer
from msgspec import Struct

import function_trials as trial
from artangram.cli.output import Printer
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, FunctionsSpec, PoolSpec
from artangram.functions import Function
from artangram.functions.workers import FunctionWorker, a_fork_server
from artangram.managers.call import FunctionCall
from artangram.managers.functions import FunctionsManager
from artangram.orchestrator.client import Client
from artangram.orchestrator.recovery import Setup
from artangram.testing.fakes import fake_cluster
from artangram_bench.result import Origin

CEILING = 64
IDLE_S = 1.0
COLD_STARTS = 30
WAVE = 50
"""Calls at once: with 2 % slow workers one of them, and a part of the ceiling is to spare."""
NAP_S, SLOW, SLOW_SHARE = 0.1, 10.0, 0.02
KILLED_S, KILL_EVERY_S = 0.05, 0.02
TIMES_BETTER_AT_LEAST = 2.0


class Burst(Struct, frozen=True, kw_only=True):
    calls: int
    took_s: float
    cold_starts: int
    most_workers: int
    to_zero_s: float
    """From the last answer until no worker was left; the slots are idle for `IDLE_S` first."""


class Hedging(Struct, frozen=True, kw_only=True):
    plain_ms: list[float]
    hedged_ms: list[float]
    copies: int
    copies_won: int


class Killing(Struct, frozen=True, kw_only=True):
    calls: int
    killed: int
    lost: int


class FunctionFigures(Struct, frozen=True, kw_only=True):
    ceiling: int
    cold_ms: list[float]
    """From asking for a worker to its being there; one at a time."""
    burst: Burst
    hedging: Hedging
    killing: Killing
    load_after: float


def functions(
    calls: Annotated[int, typer.Option(help="Calls in the burst.", min=1)] = 5000,
    waves: Annotated[
        int, typer.Option(help="Waves with hedging, and as many without.", min=2)
    ] = 40,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Serverless functions: a burst from zero and back, hedging of slow workers, killed workers."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress:
        progress.add_task("functions")
        figures = asyncio.run(_figures(calls, waves))
    _print(output, figures)
    output.json(origin.result("How do functions behave in a burst and in trouble?", figures))


async def _figures(calls: int, waves: int) -> FunctionFigures:
    cold_ms = await _cold_ms()
    async with _client() as (client, manager):
        burst = await _burst(client, manager, calls)
        hedging = await _hedging(client, manager, waves)
        killing = await _killing(client, calls // 2)
    return FunctionFigures(
        ceiling=CEILING,
        cold_ms=cold_ms,
        burst=burst,
        hedging=hedging,
        killing=killing,
        load_after=round(os.getloadavg()[0], 2),
    )


@asynccontextmanager
async def _client() -> AsyncIterator[tuple[Client, FunctionsManager]]:
    pools: dict[Resource, PoolSpec] = {
        Resource("cpu"): CpuSpec(nodes=1, cores=1, memory_mb=1024),
        Resource("functions"): FunctionsSpec(ceiling=CEILING, idle_s=IDLE_S),
    }
    manager = FunctionsManager(ceiling=CEILING, idle_s=IDLE_S)
    for function in (trial.echo, trial.nap, trial.hedged_nap, trial.identify):
        manager.register(function)
    setup = Setup(cluster=ClusterSpec(pools=pools), policy="elastic")
    try:
        async with fake_cluster(setup, carriers={FunctionCall: manager}) as client:
            yield client, manager
    finally:
        await manager.aclose()


async def _cold_ms() -> list[float]:
    forkserver = a_fork_server()
    forkserver.preload(trial.__name__)
    samples = []
    try:
        for _ in range(COLD_STARTS + 1):
            began_at = perf_counter()
            worker = FunctionWorker(forkserver.spawn())
            await worker.start()
            samples.append(1000 * (perf_counter() - began_at))
            worker.end()
            worker.close()
    finally:
        await forkserver.aclose()
    return samples[1:]  # The first one also started the zygote.


async def _burst(client: Client, manager: FunctionsManager, calls: int) -> Burst:
    echo, workers, most = client.function(trial.echo), manager.local.workers, 0

    async def called(number: int) -> None:
        nonlocal most
        assert await echo(number) == number
        most = max(most, workers.num_alive)

    assert workers.num_alive == 0
    began_at = perf_counter()
    await asyncio.gather(*(called(number) for number in range(calls)))
    ended_at = perf_counter()
    while workers.num_alive:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
    return Burst(
        calls=calls,
        took_s=ended_at - began_at,
        cold_starts=workers.num_cold_starts,
        most_workers=most,
        to_zero_s=perf_counter() - ended_at,
    )


async def _hedging(client: Client, manager: FunctionsManager, waves: int) -> Hedging:
    plain_ms: list[float] = []
    hedged_ms: list[float] = []
    for wave in range(-1, waves):
        plain, hedged = (
            await _wave(client, trial.nap, wave),
            await _wave(client, trial.hedged_nap, wave),
        )
        if wave >= 0:  # The first one starts the workers and shows what is usual.
            plain_ms += plain
            hedged_ms += hedged
    return Hedging(
        plain_ms=plain_ms,
        hedged_ms=hedged_ms,
        copies=manager.local.num_hedges,
        copies_won=manager.local.num_hedges_won,
    )


async def _wave(client: Client, function: Function[..., Any], wave: int) -> list[float]:
    nap = client.function(function)

    async def called() -> float:
        began_at = perf_counter()
        await nap(NAP_S, slow=SLOW, share=SLOW_SHARE, wave=wave)
        return 1000 * (perf_counter() - began_at)

    return await asyncio.gather(*(called() for _ in range(WAVE)))


async def _killing(client: Client, calls: int) -> Killing:
    """Workers are killed one after the other while calls run in them."""
    identify, rng = client.function(trial.identify), random.Random(0)
    seen: dict[int, int] = {}
    wrong = killed = 0

    async def called(number: int) -> None:
        nonlocal wrong
        value, pid, parent = await identify(number, KILLED_S)
        seen[pid] = parent
        wrong += value != number

    async def kill() -> None:
        nonlocal killed
        while True:
            await asyncio.sleep(KILL_EVERY_S)
            if seen:
                pid = rng.choice(sorted(seen))
                killed += _kill(pid, parent=seen.pop(pid))

    killer = asyncio.create_task(kill())
    ends = await asyncio.gather(*(called(n) for n in range(calls)), return_exceptions=True)
    killer.cancel()
    return Killing(calls=calls, killed=killed, lost=wrong + sum(end is not None for end in ends))


def _kill(pid: int, *, parent: int) -> bool:
    """Kill a worker, unless it has ended and another process has its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    if int(stat.rpartition(")")[2].split()[1]) != parent:
        return False
    os.kill(pid, signal.SIGKILL)
    return True


def _print(output: Printer, figures: FunctionFigures) -> None:
    burst, hedging, killing = figures.burst, figures.hedging, figures.killing
    output.table(
        f"{burst.calls} calls in a burst from zero, ceiling {figures.ceiling}",
        ["", "value"],
        [
            ["calls per second", f"{burst.calls / burst.took_s:.0f}"],
            ["most workers", str(burst.most_workers)],
            ["cold starts", str(burst.cold_starts)],
            ["a cold start, p50 ms", f"{median(figures.cold_ms):.1f}"],
            [f"back to zero, s (idle for {IDLE_S:g} s)", f"{burst.to_zero_s:.2f}"],
        ],
    )
    output.table(
        f"Waves of {WAVE} calls of {1000 * NAP_S:.0f} ms, {SLOW_SHARE:.0%} of workers "
        f"{SLOW:g} times slower, ms",
        ["", "p50", "p99", "samples"],
        [
            [name, f"{median(ms):.0f}", f"{_p99(ms):.0f}", str(len(ms))]
            for name, ms in (("plain", hedging.plain_ms), ("hedged", hedging.hedged_ms))
        ],
    )
    better = _p99(hedging.plain_ms) / _p99(hedging.hedged_ms)
    output.console.print(
        f"p99 is {better:.1f} times better with hedging (goal {TIMES_BETTER_AT_LEAST:g}); "
        f"{hedging.copies} second copies, {hedging.copies_won} of them won.",
        soft_wrap=True,
    )
    output.console.print(
        f"{killing.killed} workers killed under {killing.calls} calls: {killing.lost} lost "
        f"(goal 0). Load afterwards {figures.load_after}.",
        soft_wrap=True,
    )


def _p99(samples: list[float]) -> float:
    return quantiles(samples, n=100)[-1]
