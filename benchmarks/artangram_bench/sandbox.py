"""What does it cost to run a command in a sandbox, here and with other tools?

- Everything is timed in one run, in random order per round; all samples are in the JSON.
- "ours" is an action through the public interface: submitted, leased, run, released, reported. Of
  several clients each has a trajectory of its own.
- The peers are those of `sandboxpeers`; SWE-ReX runs bare here, without the container it is meant
  to have around it. No sandbox can be faster than the floor (`sandboxfloor`).
"""

import asyncio
import itertools
import os
import random
import subprocess
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median
from time import perf_counter
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.local import local
from artangram.sandbox import NamespaceProvider
from artangram.sandbox.protocol import HostImage, Sandbox
from artangram_bench.result import Origin
from artangram_bench.sandboxfloor import FLOOR, enter_floor
from artangram_bench.sandboxpeers import PROGRAM, Contender, Missing, Work, enter_peers
from artangram_bench.sandboxtimes import Series, measure

BARE, OURS, CREATE = "bare subprocess.run", "ours", "ours, create"
GROW = "grow until the new core is used"
PAUSE_S = 0.003
CLIENTS = 8
THREADS = 2 * CLIENTS
SLICES = 5
IN_CROWD = (FLOOR, BARE, OURS, "podman exec", "SWE-ReX execute")


TIMES_PEERS = {"podman exec": 100, "docker SDK exec": 60, "SWE-ReX run_in_session": 60}
TIMES_PEERS_IN_CROWD = {"podman exec": 200, "SWE-ReX execute": 15}


class Goal(Struct, frozen=True, kw_only=True):
    """A ratio that was aimed at. `value` is `None` where a side of it is missing."""

    what: str
    at_least: float | None = None
    at_most: float | None = None
    value: float | None
    limit: float | None = None
    """What it would be if a command of ours cost no more than the floor."""

    @property
    def is_met(self) -> bool:
        least, most = self.at_least or 0.0, self.at_most or float("inf")
        return self.value is not None and least <= self.value <= most


class SandboxFigures(Struct, frozen=True, kw_only=True):
    series: list[Series]
    """Milliseconds one after the other; with `CLIENTS` clients, runs per second."""
    alone: list[Series]
    """Of `artangram_bench.sandboxtimes`: many sandboxes at once, growing, memory."""
    missing: list[Missing]
    goals: list[Goal]


def sandbox(
    rounds: Annotated[int, typer.Option(help="Rounds of everything, in random order.")] = 40,
    crowd: Annotated[float, typer.Option(help="Seconds of each measurement with 8 clients.")] = 1.5,
    live: Annotated[str, typer.Option(help="Numbers of live sandboxes, with commas.")] = "10,3000",
    peers: Annotated[bool, typer.Option(help="Also measure engines and SWE-ReX.")] = True,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """The cost of a command in a sandbox, with bare processes, podman, runc and SWE-ReX beside."""
    output = Printer(json)
    counts = _counts(live)
    origin, load = Origin(), os.getloadavg()[0]
    with output.progress() as progress:
        progress.add_task("sandbox")
        figures = asyncio.run(_figures(rounds, crowd, counts, peers))
    _print(output, figures)
    output.console.print(f"Load before {load:.1f}, after {os.getloadavg()[0]:.1f}.")
    output.json(origin.result("What does a command in a sandbox cost?", figures))


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(count) for count in text.split(","))
    except ValueError:
        counts = (0,)
    if min(counts) < 1:
        raise BadInput("live", f"{text!r} are not numbers of sandboxes", "write them as 10,3000")
    return counts


async def _figures(
    rounds: int, crowd_s: float, live: tuple[int, ...], with_peers: bool
) -> SandboxFigures:
    executor = ThreadPoolExecutor(THREADS)
    asyncio.get_running_loop().set_default_executor(executor)
    rng = random.Random(0)
    async with AsyncExitStack() as stack:
        contenders, missing = await enter_peers(stack) if with_peers else ([], [])
        ours, floor = await stack.enter_async_context(_ours())
        contenders += ours
        if isinstance(floor, Missing):
            missing.append(floor)
        else:
            contenders.append(floor)
        series = await _one_by_one(contenders, rounds, rng)
        named = [one for one in contenders if one.name in IN_CROWD]
        series += await _crowded(named, crowd_s, rng, slices=SLICES)
    alone = await measure(rounds=rounds, live=live)
    return SandboxFigures(
        series=series,
        alone=list(alone.series),
        missing=missing,
        goals=goals_of(series, alone.series),
    )


@asynccontextmanager
async def _ours() -> AsyncIterator[tuple[list[Contender], Contender | Missing]]:
    provider = await NamespaceProvider.open()
    made: list[Sandbox] = []

    async def create() -> None:
        made.append(await provider.create(HostImage()))

    async def bare() -> None:
        await asyncio.to_thread(_bare)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(provider.close)
        client = await stack.enter_async_context(local())
        trajectories = [
            await stack.enter_async_context(client.trajectory(memory_mb=64)) for _ in range(CLIENTS)
        ]
        for one in trajectories:
            await one.run([PROGRAM])
        turns = itertools.cycle(trajectories)

        async def crowd(seconds: float) -> float:
            return await _rate_of([partial(_checked, one) for one in trajectories], seconds)

        ours = [
            Contender(name=BARE, run=_bare_here),
            Contender(name=f"{BARE} in a thread", run=bare),
            Contender(name=OURS, run=lambda: _checked(next(turns)), rate=crowd),
            Contender(name=CREATE, run=create, tidy=lambda: made.pop().close()),
        ]
        yield ours, await enter_floor(stack, provider, pause_s=PAUSE_S, clients=CLIENTS)


async def _checked(trajectory: TrajectoryHandle) -> None:
    result = await trajectory.run([PROGRAM])
    assert result.ok, result.reason


async def _bare_here() -> None:
    _bare()


def _bare() -> None:
    subprocess.run([PROGRAM], capture_output=True, check=True)


async def _one_by_one(contenders: list[Contender], rounds: int, rng: random.Random) -> list[Series]:
    samples: dict[str, list[float]] = {one.name: [] for one in contenders}
    for _ in range(rounds):
        for one in rng.sample(contenders, len(contenders)):
            began_at = perf_counter()
            told = await one.run()
            took_ms = 1000 * (perf_counter() - began_at)
            samples[one.name].append(told if isinstance(told, float) else took_ms)
            if one.tidy is not None:
                await one.tidy()
            await asyncio.sleep(PAUSE_S)
    return [Series(name=name, unit="ms", samples=tuple(s)) for name, s in samples.items()]


async def _crowded(
    contenders: list[Contender], slice_s: float, rng: random.Random, *, slices: int
) -> list[Series]:
    """Runs per second of several clients, slice by slice."""
    rates: dict[str, list[float]] = {one.name: [] for one in contenders}
    for _ in range(slices):
        for one in rng.sample(contenders, len(contenders)):
            rates[one.name].append(await _rate(one, slice_s))
    return [
        Series(name=f"{name}, {CLIENTS} clients", unit="/s", samples=tuple(found))
        for name, found in rates.items()
    ]


async def _rate(contender: Contender, slice_s: float) -> float:
    if contender.rate is not None:
        return await contender.rate(slice_s)
    return await _rate_of([contender.run] * CLIENTS, slice_s)


async def _rate_of(clients: list[Work], seconds: float) -> float:
    """Runs per second of clients that each start the next one when the last has ended."""
    began_at = perf_counter()

    async def busy(run: Work) -> int:
        runs = 0
        while perf_counter() - began_at < seconds:
            await run()
            runs += 1
        return runs

    total = sum(await asyncio.gather(*map(busy, clients)))
    return total / (perf_counter() - began_at)


def goals_of(series: list[Series], alone: tuple[Series, ...]) -> list[Goal]:
    """What was aimed at and what came out. `series` ran interleaved, `alone` afterwards."""
    # Apart: both runs have a bare process, and only what ran interleaved may be compared.
    together = {one.name: median(one.samples) for one in series}
    p50 = {one.name: median(one.samples) for one in alone}

    def over(slow: str, fast: str) -> float | None:
        found = together if fast in together else p50
        return found[slow] / found[fast] if slow in found and fast in found else None

    many = f", {CLIENTS} clients"
    most = max(int(n.rpartition(" ")[2]) for n in p50 if n.startswith("exec with a core at "))
    return [
        Goal(
            what="ours / bare subprocess.run",
            at_most=1.5,
            value=over(OURS, BARE),
            limit=over(FLOOR, BARE),
        ),
        *(
            Goal(
                what=f"{peer} / ours",
                at_least=least,
                value=over(peer, OURS),
                limit=over(peer, FLOOR),
            )
            for peer, least in TIMES_PEERS.items()
        ),
        Goal(what="podman run -d / ours, create", at_least=20, value=over("podman run -d", CREATE)),
        *(
            Goal(
                what=f"ours / {peer} per second{many}",
                at_least=least,
                value=over(OURS + many, peer + many),
                limit=over(FLOOR + many, peer + many),
            )
            for peer, least in TIMES_PEERS_IN_CROWD.items()
        ),
        Goal(
            what=f"exec with {most} sandboxes / with 10, each / bare",
            at_most=1.5,
            value=_growth(p50, most),
        ),
        Goal(
            what=f"lease with {most} sandboxes / with 10",
            at_most=1.5,
            value=over(f"lease at {most}", "lease at 10"),
        ),
        Goal(
            what=f"MiB per sandbox with {most}",
            at_most=1.6,
            value=p50.get(f"memory per sandbox at {most}"),
        ),
        Goal(
            what="throughput of two cores over one",
            at_least=1.8,
            value=p50.get("throughput of two cores over one"),
        ),
        Goal(what="ms until a new core is used, p95", at_most=5, value=_p95(alone, GROW)),
    ]


def _growth(p50: dict[str, float], most: int) -> float | None:
    """How much an exec suffers from many sandboxes; the bare process beside it tells the load."""
    names = [(f"exec with a core at {n}", f"bare subprocess.run at {n}") for n in (most, 10)]
    if not all(name in p50 for pair in names for name in pair):
        return None
    many, few = (p50[ours] / p50[bare] for ours, bare in names)
    return many / few


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _p95(series: tuple[Series, ...], name: str) -> float | None:
    return next((one.percentile(95) for one in series if one.name == name), None)


def _print(output: Printer, figures: SandboxFigures) -> None:
    ours = {one.unit: median(one.samples) for one in figures.series if one.name.startswith(OURS)}
    bare = next(median(one.samples) for one in figures.series if one.name == BARE)
    ours["ms"] = next(median(one.samples) for one in figures.series if one.name == OURS)
    rows = []
    for one in figures.series:
        middle = median(one.samples)
        by_ours = middle / ours[one.unit]
        by_bare = f"{middle / bare:.1f}" if one.unit == "ms" else ""
        rows.append(
            [
                one.name,
                one.unit,
                _short(middle),
                _short(one.percentile(95)),
                _short(by_ours),
                by_bare,
            ]
        )
    columns = ["", "unit", "p50", "p95", "/ ours", "/ bare"]
    output.table("A command, all at once in one run", columns, rows)
    alone = [
        [one.name, one.unit, f"{median(one.samples):.2f}", f"{one.percentile(95):.2f}"]
        for one in figures.alone
    ]
    output.table("Sandboxes alone", ["", "unit", "p50", "p95"], alone)
    goals = [
        [
            goal.what,
            f">= {goal.at_least:g}" if goal.at_least is not None else f"<= {goal.at_most:g}",
            "not measured" if goal.value is None else f"{goal.value:.2f}",
            "yes" if goal.is_met else "no",
            "" if goal.limit is None else f"{goal.limit:.2f}",
        ]
        for goal in figures.goals
    ]
    columns = ["", "goal", "found", "met", "at the floor"]
    output.table("Goals (p50)", columns, goals)
    for peer in figures.missing:
        output.console.print(f"Not measured: {peer.name}: {peer.why}. To get it: {peer.how}")
