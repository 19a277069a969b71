"""How much time does the orchestrator add to an action, and how many can it run in a second?

- Added to an action: how long its core was idle before it, and how long its caller waited after
  it. The action sleeps 10 ms in a fake sandbox; `bench sandbox` measures what a process costs.
- Per second: no-op actions of many callers at once. "embedded" stays in this process, which no
  Ray call does; "agent" crosses to another process and back and is in a journal, and no more
  actions are in flight than there are cores to lease, where Ray sends all of its calls at once;
  "sandbox" starts a real process.
- Rounds are interleaved: everything once, in random order, then again.
"""

import asyncio
import cProfile
import os
import pstats
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from logging import ERROR
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from typing import Annotated, Any

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import local, running
from artangram.sandbox.fake import Console, FakeProvider
from artangram_bench.result import Origin

QUEUED = 500
ACTION_S = 0.01
PER_TRAJECTORY = 3
CALLERS = 64
ACTORS = 2
ADDED_MS_AT_MOST, TIMES_RAY_AT_LEAST = 2.0, 3.0
PROFILED = 12
"""Functions of the profile that are kept."""


class Added(Struct, frozen=True, kw_only=True):
    """Milliseconds added to each action; the two lists belong together."""

    journal: str
    idle_ms: list[float]
    """From the end of the action before, on the same core, to its beginning."""
    answer_ms: list[float]
    """From its end to its caller."""

    def p50_ms(self) -> float:
        return median(i + a for i, a in zip(self.idle_ms, self.answer_ms, strict=True))


class Rate(Struct, frozen=True, kw_only=True):
    name: str
    per_s: list[float]
    """One figure a round."""


class Profile(Struct, frozen=True, kw_only=True):
    """What the orchestrator's thread does while no-ops go through it."""

    name: str
    busy_share: float
    """Of the time it was on a core; the rest it waited for agent, journal or a core."""
    cpu_us: float
    """Of that thread, per action."""
    rooms: dict[str, float]
    """Shares of its own time, by package; `python` is the event loop and built-in functions."""
    functions: list[str]
    """Own seconds, calls, function; the longest first."""


class OverheadFigures(Struct, frozen=True, kw_only=True):
    queued: int
    added: list[Added]
    rates: list[Rate]
    times_ray: float | None
    """No-op actions of the embedded client over calls of Ray actors."""
    agent_times_ray: float | None
    profiles: list[Profile]
    load_after: float


def overhead(
    rounds: Annotated[int, typer.Option(help="Rounds of everything, in random order.", min=1)] = 3,
    actions: Annotated[int, typer.Option(help="No-op actions per round.", min=CALLERS)] = 1500,
    peers: Annotated[bool, typer.Option(help="Also measure Ray.")] = True,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """What the orchestrator adds to a 10 ms action, and no-op actions per second beside Ray."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress:
        progress.add_task("overhead")
        figures = asyncio.run(_figures(rounds, actions, peers))
    _print(output, figures)
    output.json(origin.result("What does the orchestrator add to an action?", figures))


async def _figures(rounds: int, actions: int, with_ray: bool) -> OverheadFigures:
    added = [await _added("memory", None)]
    with TemporaryDirectory(prefix="artangram-overhead-") as folder:
        added.append(await _added("file", Path(folder)))
    rates = await _rates(rounds, actions, with_ray)
    by_name = {rate.name: median(rate.per_s) for rate in rates}
    ray = by_name.get("Ray actor calls")
    return OverheadFigures(
        queued=QUEUED,
        added=added,
        rates=rates,
        times_ray=by_name["embedded"] / ray if ray else None,
        agent_times_ray=by_name["agent"] / ray if ray else None,
        profiles=await _profiles(actions),
        load_after=round(os.getloadavg()[0], 2),
    )


class Stopwatch:
    """A program for a fake sandbox that notes how long its core lay idle before it."""

    def __init__(self) -> None:
        self._free_at: dict[tuple[int, ...], float] = {}
        self.ended_at: dict[str, float] = {}
        self.idle_before: dict[str, float] = {}

    async def program(self, console: Console, argv: tuple[str, ...]) -> int:
        """`nap NAME` sleeps and remembers under NAME."""
        cores, name = console.command.cores, argv[1]
        now = perf_counter()
        self.idle_before[name] = now - self._free_at.get(cores, now)
        await asyncio.sleep(ACTION_S)
        self.ended_at[name] = self._free_at[cores] = perf_counter()
        return 0


async def _added(journal: str, state_dir: Path | None) -> Added:
    """`QUEUED` callers wait while others run; each comes back as soon as it is answered."""
    watch = Stopwatch()
    provider = FakeProvider(programs={"nap": watch.program})
    added = Added(journal=journal, idle_ms=[], answer_ms=[])

    async def caller(trajectory: TrajectoryHandle, number: int) -> None:
        for turn in range(PER_TRAJECTORY):
            name = f"{number}-{turn}"
            await trajectory.run(["nap", name], kind="nap")
            if turn:  # The first one also makes the sandbox.
                added.answer_ms.append(1000 * (perf_counter() - watch.ended_at[name]))
                added.idle_ms.append(1000 * watch.idle_before[name])

    async with local(provider=provider, state_dir=state_dir, memory_mb=1 << 20) as client:
        callers = QUEUED + len(os.sched_getaffinity(0))
        async with _trajectories(client, callers) as all_of_them:
            await asyncio.gather(*(caller(one, n) for n, one in enumerate(all_of_them)))
    return added


@asynccontextmanager
async def _trajectories(client: Client, count: int) -> AsyncIterator[list[TrajectoryHandle]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(client.trajectory(memory_mb=64)) for _ in range(count)
        ]


async def _rates(rounds: int, actions: int, with_ray: bool) -> list[Rate]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="artangram-overhead-")))
        contenders: dict[str, Callable[[], Awaitable[int]]] = {}
        for name, client in {
            "embedded": local(provider=FakeProvider(), memory_mb=1 << 20),
            "agent": _through_agent(folder),
            "sandbox": local(),
        }.items():
            callers = await stack.enter_async_context(
                _trajectories(await stack.enter_async_context(client), CALLERS)
            )
            await _noops(callers, CALLERS)
            contenders[name] = partial(_noops, callers, actions)
        if with_ray:
            calls = stack.enter_context(_ray())
            contenders["Ray actor calls"] = partial(asyncio.to_thread, calls, actions)
        rates = {name: Rate(name=name, per_s=[]) for name in contenders}
        rng = random.Random(0)
        for _ in range(rounds):
            for name in rng.sample(sorted(contenders), len(contenders)):
                began_at = perf_counter()
                done = await contenders[name]()
                rates[name].per_s.append(done / (perf_counter() - began_at))
        return list(rates.values())


@asynccontextmanager
async def _through_agent(folder: Path) -> AsyncIterator[Client]:
    async with running(
        state_dir=folder, memory_mb=1 << 20, agent_options=("--provider", "fake")
    ) as (orchestrator, _):
        yield Client(Embedded(orchestrator))


async def _noops(callers: list[TrajectoryHandle], actions: int) -> int:
    each = actions // len(callers)

    async def caller(trajectory: TrajectoryHandle) -> None:
        for _ in range(each):
            result = await trajectory.run(["true"], kind="noop")
            assert result.ok, result.reason

    await asyncio.gather(*(caller(one) for one in callers))
    return each * len(callers)


@contextmanager
def _ray() -> Iterator[Callable[[int], int]]:
    """Calls no-op methods of actors and waits for all of them."""
    try:
        ray: Any = import_module("ray")
    except ImportError:
        fix = "pip install 'artangram[peers]', or --no-peers"
        raise BadInput("peers", "ray is not installed", fix) from None
    ray.init(num_cpus=ACTORS, include_dashboard=False, logging_level=ERROR, log_to_driver=False)
    try:
        actors = [ray.remote(_Actor).remote() for _ in range(ACTORS)]

        def calls(number: int) -> int:
            ray.get([actors[n % ACTORS].noop.remote() for n in range(number)])
            return number

        calls(200)
        yield calls
    finally:
        ray.shutdown()


class _Actor:
    def noop(self) -> None:
        """What Ray runs."""


async def _profiled(name: str, client: Client, actions: int) -> Profile:
    async with _trajectories(client, CALLERS) as callers:
        await _noops(callers, CALLERS)
        # Once without the profiler, which would make this process look busier than it is.
        began_at, used = perf_counter(), thread_time()
        done = await _noops(callers, actions)
        cpu_s = thread_time() - used
        took_s = perf_counter() - began_at
        profiler = cProfile.Profile()
        with profiler:
            await _noops(callers, actions)
    stats: Any = pstats.Stats(profiler)
    found = sorted(stats.stats.items(), key=lambda item: -item[1][2])
    return Profile(
        name=name,
        busy_share=cpu_s / took_s,
        cpu_us=1e6 * cpu_s / done,
        rooms=_by_room([(file, own) for (file, _, _), (_, _, own, _, _) in found]),
        functions=[
            f"{own:.3f} {calls} {Path(file).name}:{line} {function}"
            for (file, line, function), (_, calls, own, _, _) in found[:PROFILED]
        ],
    )


def _by_room(own_s: list[tuple[str, float]]) -> dict[str, float]:
    """Shares of the time, by our packages; everything else counts as Python's."""
    shares: dict[str, float] = {}
    total = sum(own for _, own in own_s)
    for file, own in own_s:
        _, is_ours, path = file.rpartition("/artangram/")
        room = path.partition("/")[0].removesuffix(".py") if is_ours else "python"
        shares[room] = shares.get(room, 0.0) + own / total
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


async def _profiles(actions: int) -> list[Profile]:
    async with local(provider=FakeProvider(), memory_mb=1 << 20) as client:
        embedded = await _profiled("embedded", client, actions)
    with TemporaryDirectory(prefix="artangram-overhead-") as folder:
        async with _through_agent(Path(folder)) as client:
            return [embedded, await _profiled("agent", client, actions)]


def _print(output: Printer, figures: OverheadFigures) -> None:
    output.table(
        f"Added to a 10 ms action with {figures.queued} queued, ms "
        f"(goal p50 <= {ADDED_MS_AT_MOST:g})",
        ["journal", "idle p50", "answer p50", "both p50", "samples"],
        [
            [
                one.journal,
                f"{median(one.idle_ms):.2f}",
                f"{median(one.answer_ms):.2f}",
                f"{one.p50_ms():.2f}",
                str(len(one.idle_ms)),
            ]
            for one in figures.added
        ],
    )
    output.table(
        "No-ops per second",
        ["", "p50", "least", "most"],
        [
            [one.name, f"{median(one.per_s):.0f}", f"{min(one.per_s):.0f}", f"{max(one.per_s):.0f}"]
            for one in figures.rates
        ],
    )
    if figures.times_ray is not None:
        output.console.print(
            f"Embedded: {figures.times_ray:.2f}x the calls of Ray actors (goal "
            f"{TIMES_RAY_AT_LEAST:g}x); through an agent {figures.agent_times_ray:.2f}x. Load "
            f"afterwards {figures.load_after}.",
            soft_wrap=True,
        )
    for profile in figures.profiles:
        rooms = ", ".join(f"{room} {share:.0%}" for room, share in profile.rooms.items())
        output.console.print(
            f"{profile.name}: the orchestrator's thread is on a core for {profile.busy_share:.0%} "
            f"of the time, {profile.cpu_us:.0f} us per action: {rooms}. Own seconds, calls, where:",
            soft_wrap=True,
        )
        for line in profile.functions:
            output.console.print(f"  {line}")
