"""Does every action end exactly once, whatever the network and the power do?

- A head and agents on hosts in network namespaces, with real sandboxes; callers on this machine.
- Random faults while actions run: connection resets, glitches of up to 5 s, partitions beyond the
  fence, losses of power of hosts and of the head, which is started again with its journal.
- Each action has one end, and the same one when its caller asks again. Looks at the machine's
  processes find no core with two runs, no action twice at once, and no action twice at all that
  must not be repeated. Only a host that lost power or was cut off beyond its fence fails anything.
  In the end nothing is left.
- A policy that preempts lets a run stand aside on a core that it does not hold, so under it the
  head is asked instead: no node may ever lend more cores than it has.
"""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.records import Unreachable
from artangram_bench.hostcluster import TOKEN, HostCluster
from artangram_bench.hosts import CAN_MAKE_HOSTS, WHY_NOT, Host, some_hosts
from artangram_bench.result import Origin
from artangram_bench.soakfaults import FaultName, Faults, Relay
from artangram_bench.soakload import Load
from artangram_bench.soakwatch import Watch

CORES = 2
QUIET_S = 120.0
"""Until the cluster is whole and empty after the last action."""
BOOKS_EVERY_S = 0.25


class SoakFigures(Struct, frozen=True, kw_only=True):
    """What a soak found."""

    actions: int
    policy: str
    seed: int
    hosts: int
    fence_s: float
    took_s: float
    outcomes: dict[str, int]
    faults: dict[str, int]
    history: list[str]
    """Seconds from the beginning, and the fault that began then."""
    head_away_s: list[float]
    """From its loss of power until the head served again."""
    unreachable: int
    """Requests that got no answer, and were made again."""
    samples: int
    """Looks at all processes of the machine."""
    looks_at_books: int
    """How often the head said how many cores each node lends."""
    runs_seen: int
    most_runs_of_one: int
    """Of a repeatable action."""
    violations: list[str]

    @property
    def is_sound(self) -> bool:
        return not self.violations and sum(self.outcomes.values()) == self.actions


def soak(
    actions: Annotated[int, typer.Option(help="How many actions must end.", min=1)] = 10_000,
    hosts: Annotated[int, typer.Option(help="Machines, the head included.", min=2, max=9)] = 4,
    callers: Annotated[int, typer.Option(help="Trajectories at once.", min=1)] = 16,
    fence_s: Annotated[float, typer.Option(help="The cluster's fence.", min=12.0)] = 30.0,
    every_s: Annotated[float, typer.Option(help="Mean seconds between faults.", min=0.1)] = 5.0,
    policy: Annotated[
        str, typer.Option(help="Under fcfs the processes on each core are checked, too.")
    ] = "fcfs",
    seed: Annotated[int, typer.Option(help="Of the faults and the actions.", min=0)] = 1,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Run actions under random faults on namespace hosts; exit code 1 if anything is not sound."""
    if not CAN_MAKE_HOSTS:
        raise BadInput("soak", WHY_NOT, "run it as root where both are installed")
    output, origin = Printer(json), Origin()
    with output.progress() as progress:
        progress.add_task(f"{actions} actions under faults")
        plan = Soak(
            actions=actions,
            hosts=hosts,
            callers=callers,
            fence_s=fence_s,
            every_s=every_s,
            policy=policy,
            seed=seed,
        )
        found = _run(plan)
    _print(output, found)
    output.json(origin.result("Does every action end exactly once under faults?", found))
    if not found.is_sound:
        raise typer.Exit(1)


class Soak(Struct, frozen=True, kw_only=True):
    """What to run."""

    actions: int = 10_000
    hosts: int = 4
    callers: int = 16
    fence_s: float = 30.0
    every_s: float = 5.0
    policy: str = "fcfs"
    """Under a policy that preempts, runs that stand aside share a core with those that hold it."""
    seed: int = 1
    first: tuple[FaultName, ...] = ()
    """Faults that happen in any case, before random ones."""
    net: int = 78
    """The network of the hosts, 10.`net`.0.0/24."""


def _run(plan: Soak) -> SoakFigures:
    with TemporaryDirectory(prefix="artangram-soak-") as folder:
        return asyncio.run(soaked(plan, Path(folder)))


async def soaked(plan: Soak, folder: Path) -> SoakFigures:
    """Run a soak; logs and the head's state are in `folder`."""
    rng = Random(plan.seed)
    async with AsyncExitStack() as stack:
        hosts = stack.enter_context(some_hosts(plan.hosts, net=plan.net))
        relay = Relay(hosts[0].address, 7411)
        here = f"10.{plan.net}.0.254"
        port = await stack.enter_async_context(relay.listening(here))
        described = f"fence_s: {plan.fence_s:g}\npolicy: {plan.policy}\n"
        cluster = HostCluster(
            hosts, folder, described=described, endpoint=(here, port), cores=CORES
        )
        await asyncio.to_thread(cluster.start_head)
        for worker in cluster.workers:
            await asyncio.to_thread(cluster.start_agent, worker)
        watch = stack.enter_context(
            Watch(
                lambda: {pid: host.name for host in hosts for pid in host.pids()},
                checks_cores=plan.policy == "fcfs",
            )
        )
        client = await stack.enter_async_context(connect(cluster.url, token=TOKEN))
        faults = Faults(
            cluster, relay, fence_s=plan.fence_s, rng=Random(rng.random()), clock=watch.clock
        )
        load = Load(
            client,
            is_over=lambda count: count >= plan.actions and faults.has_done_first,
            rng=Random(rng.random()),
            host_of=watch.host_of_action,
            may_fail=faults.may_fail,
        )
        return await _soaked(plan, hosts, load, faults, watch, client)


async def _soaked(
    plan: Soak, hosts: list[Host], load: Load, faults: Faults, watch: Watch, client: Client
) -> SoakFigures:
    began_at = time.monotonic()
    happening = asyncio.create_task(faults.go_on(every_s=plan.every_s, first=list(plan.first)))
    books = _Books()
    reading = asyncio.create_task(books.read_on(client))
    running = asyncio.create_task(load.run(plan.callers))
    await asyncio.wait({running, happening}, return_when=asyncio.FIRST_COMPLETED)
    if happening.done():
        running.cancel()
        await happening  # It ends only by an error.
    happening.cancel()
    reading.cancel()
    await asyncio.wait({happening, reading})
    await running
    took_s = time.monotonic() - began_at
    await faults.calm()
    left = await _left_over(client, watch, len(hosts))
    await load.ask_again()
    unended = await asyncio.to_thread(_unended, hosts)
    if watch.error is not None:
        raise watch.error
    outcomes = Counter(str(a.result.outcome) for a in load.actions if a.result is not None)
    runs = Counter(run.action for run in watch.seen)
    return SoakFigures(
        actions=len(load.actions),
        policy=plan.policy,
        seed=plan.seed,
        hosts=len(hosts),
        fence_s=plan.fence_s,
        took_s=took_s,
        outcomes=dict(outcomes),
        faults={str(name): count for name, count in faults.counts.items()},
        history=faults.history,
        head_away_s=[round(away_s, 1) for away_s in faults.head_away_s],
        unreachable=load.num_unreachable,
        samples=watch.samples,
        looks_at_books=books.looks,
        runs_seen=len(watch.seen),
        most_runs_of_one=max(runs.values(), default=0),
        violations=[
            *(*load.violations, *left, *unended),
            *(*watch.violations, *books.violations, *_twice(load, runs)),
        ],
    )


class _Books:
    """What the head says that its nodes lend."""

    def __init__(self) -> None:
        self.looks = 0
        self.violations: list[str] = []

    async def read_on(self, client: Client) -> None:
        while True:
            await asyncio.sleep(BOOKS_EVERY_S)
            with suppress(Unreachable):
                nodes = (await client.status()).nodes
                self.looks += 1
                self.violations += [
                    f"{node.node} lends {node.cores_used} of {node.cores} cores"
                    for node in nodes
                    if node.cores_used > node.cores
                ]


async def _left_over(client: Client, watch: Watch, num_nodes: int) -> list[str]:
    """What is left although all trajectories are closed and every host is there again."""
    found = "no status"
    give_up_at = time.monotonic() + QUIET_S
    while time.monotonic() < give_up_at:
        status = await client.status()
        nodes = status.nodes
        is_whole = len(nodes) == num_nodes and all(str(n.state) == "trusted" for n in nodes)
        sandboxes = sum(n.population.sandboxes for n in nodes if n.population is not None)
        held = sum(n.running + n.cores_used + n.memory_used_mb for n in nodes)
        idle = status.trajectories + status.running + status.queued + sandboxes + held == 0
        if is_whole and idle and watch.running == 0:
            return []
        found = f"left after the end: {status}, {watch.running} runs seen"
        await asyncio.sleep(0.5)
    return [found]


def _unended(hosts: list[Host]) -> list[str]:
    """End the programs as a supervisor does; those that do not end well."""
    found: list[str] = []
    for host in (*hosts[1:], hosts[0]):
        codes = host.end(60.0)
        found += [f"the program of {host.name} ended with {code}" for code in codes if code != 0]
    return found


def _twice(load: Load, runs: Counter[int]) -> list[str]:
    return [
        f"action {action.number} must not be repeated and ran {runs[action.number]} times"
        for action in load.actions
        if not action.repeatable and runs[action.number] > 1
    ]


def _print(output: Printer, found: SoakFigures) -> None:
    rows = [[name, str(count)] for name, count in {**found.outcomes, **found.faults}.items()]
    output.table(
        f"{found.actions} actions on {found.hosts} hosts in {found.took_s:.0f} s",
        ["", "count"],
        [*rows, ["looks at all processes", str(found.samples)], ["runs", str(found.runs_seen)]],
    )
    for violation in found.violations[:20]:
        output.console.print(violation, soft_wrap=True, markup=False)
    output.console.print("sound" if found.is_sound else f"{len(found.violations)} violations")
