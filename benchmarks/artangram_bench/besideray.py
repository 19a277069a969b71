"""A cluster of hosts in network namespaces, beside Ray on the same hosts, in one run.

- No-op actions through agents with fake sandboxes, beside Ray's tasks and awaited calls of Ray's
  async actors, with as many cores; and the same agent over TLS and over a unix socket.
- A contended coding trace with real sandboxes on one worker: every action leased by us, beside Ray
  tasks that ask for one CPU, and for the most that the action can use. Both sides have the same
  sandboxes, the same cores and the same trajectories, in random order per round.
- Our orchestrator keeps a journal in a file. For the trace it is flushed to the disk, as `artangram
  up` does; for the no-ops it is not, because that would measure the disk. Ray keeps none.
"""

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.joinednodes import AgentAddress, AgentEndpoint
from artangram.orchestrator.local import NODE, running
from artangram.orchestrator.options import between
from artangram_bench.hosts import (
    CAN_MAKE_HOSTS,
    WHY_NOT,
    Host,
    children_of,
    cpu_s,
    some_hosts,
)
from artangram_bench.live_plans import DUTIES, Plan, SuiteFiles, plans
from artangram_bench.rayhosts import RayHost, until
from artangram_bench.raypeerwire import (
    IN_FLIGHT,
    NoopRequest,
    PeerAction,
    PeerAnswer,
    PeerRequest,
    TraceRequest,
)
from artangram_bench.result import Origin

NET = 79
OURS, OURS_ONE, UNIX = "2 agents over TLS", "1 agent over TLS", "1 agent over a unix socket"
TASKS, CALLS = "Ray tasks", "Ray actor calls"
TASKS_AT_LEAST, CALLS_AT_LEAST, TCP_AT_LEAST, ACT_AT_LEAST = 3.0, 4.0, 0.6, 1.5
TURNS = 8.0


class RateRow(Struct, frozen=True, kw_only=True):
    name: str
    per_s: list[float]
    """By round."""
    cpu_us: list[float]
    """Of all processes that take part, per action, by round: the same on a busy machine."""


class ActRow(Struct, frozen=True, kw_only=True):
    name: str
    acts_s: list[list[float]]
    """Of each action, by round."""
    makespan_s: list[float]
    failed: int

    def mean_s(self) -> float:
        return mean(act for acts in self.acts_s for act in acts)

    def p99_s(self) -> float:
        every = sorted(act for acts in self.acts_s for act in acts)
        return every[int(0.99 * len(every))]


class RayFigures(Struct, frozen=True, kw_only=True):
    cores: int
    """Of each worker; they share those of the machine."""
    rates: list[RateRow]
    times_tasks: float
    times_calls: float
    tcp_of_unix: float
    cpu_of_tasks: float
    """CPU time of a Ray task over that of an action."""
    cpu_of_calls: float
    trajectories: int
    acts: list[ActRow]
    better_than_one: float
    """Mean ACT of Ray tasks with one CPU over ours."""
    better_than_largest: float
    load_after: float


def beside_ray(
    rounds: Annotated[int, typer.Option(help="Rounds, in random order.", min=1)] = 5,
    actions: Annotated[int, typer.Option(help="No-ops per round.", min=64)] = 4000,
    traces: Annotated[int, typer.Option(help="Rounds of the coding trace.", min=1)] = 2,
    trajectories: Annotated[int, typer.Option(help="Of the coding trace.", min=1)] = 12,
    seed: Annotated[int, typer.Option(help="Same seed, same trajectories.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Actions per second and ACT on several hosts, beside Ray on the same hosts."""
    if not CAN_MAKE_HOSTS:
        raise BadInput("hosts", "cannot be made", WHY_NOT)
    output, origin = Printer(json), Origin()
    with (
        output.progress() as progress,
        TemporaryDirectory(prefix="artangram-cluster-") as folder,
        some_hosts(5, net=NET) as hosts,
    ):
        progress.add_task("ray")
        Path(folder).chmod(0o755)
        measure = _Measure(hosts, Path(folder))
        with measure.ray():
            figures = asyncio.run(
                measure.figures(rounds, actions, traces, trajectories, random.Random(seed))
            )
    _print(output, figures)
    output.json(origin.result("What does a cluster bring beside Ray on the same hosts?", figures))


class _Measure:
    """The hosts: three for Ray (its head has no CPUs), two for our agents."""

    def __init__(self, hosts: list[Host], folder: Path) -> None:
        self._ray = [RayHost(host, folder) for host in hosts[:3]]
        self._ours = hosts[3:]
        self._folder = folder
        self._cores = len(os.sched_getaffinity(0))
        self._peer: subprocess.Popen[str] | None = None

    @contextmanager
    def ray(self) -> Iterator[None]:
        """A Ray cluster and a driver on it."""
        head = self._ray[0]
        for host in self._ray:
            host.boot()
        for host in self._ray:
            host.start_ray(head, cpus=0 if host is head else self._cores)
        self._peer = head.talk("artangram_bench.raypeer", log=self._folder / "peer.log")
        try:
            yield
        finally:
            self._peer.kill()
            self._peer.wait()

    async def figures(
        self, rounds: int, actions: int, traces: int, trajectories: int, rng: random.Random
    ) -> RayFigures:
        rates = await self._rates(rounds, actions, rng)
        of = {rate.name: median(rate.per_s) for rate in rates}
        cpu = {rate.name: median(rate.cpu_us) for rate in rates}
        acts = await self._acts(traces, trajectories, rng)
        ours, one, largest = (row.mean_s() for row in acts)
        return RayFigures(
            cores=self._cores,
            rates=rates,
            times_tasks=of[OURS] / of[TASKS],
            times_calls=of[OURS] / of[CALLS],
            tcp_of_unix=of[OURS_ONE] / of[UNIX],
            cpu_of_tasks=cpu[TASKS] / cpu[OURS],
            cpu_of_calls=cpu[CALLS] / cpu[OURS],
            trajectories=trajectories,
            acts=acts,
            better_than_one=one / ours,
            better_than_largest=largest / ours,
            load_after=round(os.getloadavg()[0], 2),
        )

    async def _rates(self, rounds: int, actions: int, rng: random.Random) -> list[RateRow]:
        async with AsyncExitStack() as stack:
            contenders: dict[str, Callable[[], Awaitable[object]]] = {}
            for name, count in {OURS: 2, OURS_ONE: 1, UNIX: 0}.items():
                client = await stack.enter_async_context(self._cluster(count, provider="fake"))
                callers = await stack.enter_async_context(_trajectories(client))
                contenders[name] = partial(_noops, callers, actions)
            for name, as_calls in {TASKS: False, CALLS: True}.items():
                asked = NoopRequest(count=actions, as_calls=as_calls)
                contenders[name] = partial(self._ask, asked)
            for warm_up in contenders.values():
                await warm_up()
            rows = {name: RateRow(name=name, per_s=[], cpu_us=[]) for name in contenders}
            for _ in range(rounds):
                for name in rng.sample(sorted(contenders), len(contenders)):
                    pids = self._pids(of_ray=name in (TASKS, CALLS))
                    began_at, began_s = perf_counter(), cpu_s(pids)
                    await contenders[name]()
                    rows[name].per_s.append(actions / (perf_counter() - began_at))
                    rows[name].cpu_us.append((cpu_s(pids) - began_s) / actions * 1e6)
        return list(rows.values())

    def _pids(self, *, of_ray: bool) -> list[int]:
        """All that takes part on one side, callers included."""
        if of_ray:
            return [pid for host in self._ray for pid in host.pids()]
        here = os.getpid()
        agents = children_of(here)  # Those on hosts are below an init, which counts nothing.
        return [here, *agents, *(pid for host in self._ours for pid in host.processes())]

    async def _acts(self, traces: int, trajectories: int, rng: random.Random) -> list[ActRow]:
        shop = SuiteFiles(self._folder)
        names = ("elastic", "Ray tasks, one CPU", "Ray tasks, largest size")
        rows = {n: ActRow(name=n, acts_s=[], makespan_s=[], failed=0) for n in names}
        async with self._cluster(1, provider="strongest") as client:
            for _ in range(traces):
                batch = plans(DUTIES["paper"], count=trajectories, turns=TURNS, rng=rng)
                for name in rng.sample(names, len(names)):
                    if name == names[0]:
                        answer = await _ours(client, batch, shop, self._cores)
                    else:
                        most = 1 if name == names[1] else self._cores
                        answer = await self._ask(_request(batch, shop, most))
                    rows[name].acts_s.append(answer.acts_s)
                    rows[name].makespan_s.append(answer.took_s)
                    row = rows[name]
                    rows[name] = msgspec.structs.replace(row, failed=row.failed + answer.failed)
        return list(rows.values())

    @asynccontextmanager
    async def _cluster(self, count: int, *, provider: str) -> AsyncIterator[Client]:
        """An orchestrator with `count` agents on hosts, or with 0 its own over a unix socket."""
        name = f"{provider}-{count}"
        state = self._folder / name
        await asyncio.to_thread(state.mkdir)
        agents: list[tuple[subprocess.Popen[bytes], Path]] = []
        opened: asyncio.Future[AgentAddress] = asyncio.get_running_loop().create_future()
        endpoint = AgentEndpoint(
            host=f"10.{NET}.0.254",
            port=0,
            token=name,
            state_dir=state,
            on_open=opened.set_result,
        )
        async with running(
            state_dir=state,
            memory_mb=1 << 20,
            agent_options=("--provider", provider),
            endpoint=endpoint if count else None,
            sync=provider != "fake",
        ) as (orchestrator, backends):
            client = Client(Embedded(orchestrator, backends=backends))
            if count:
                at = await opened
                agents = [self._agent(host, at, endpoint, provider) for host in self._ours[:count]]
                await asyncio.gather(*(asyncio.to_thread(_joined, log) for _, log in agents))
                await client.drain(NODE)  # The head's own node takes no part.
            try:
                yield client
            finally:
                for agent, _ in agents:
                    agent.kill()

    def _agent(
        self, host: Host, at: AgentAddress, endpoint: AgentEndpoint, provider: str
    ) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"{host.name}-{endpoint.token}.log"
        agent = host.artangram(
            *("agent", "--join", f"{at.host}:{at.port}", "--fingerprint", at.fingerprint),
            *("--node", host.name, "--memory-mb", str(1 << 19), "--provider", provider),
            log=log,
            ARTANGRAM_JOIN_TOKEN=endpoint.token,
        )
        return agent, log

    async def _ask(self, request: PeerRequest) -> PeerAnswer:
        """Ray's driver, one request at a time."""
        return await asyncio.to_thread(self._asked, request)

    def _asked(self, request: PeerRequest) -> PeerAnswer:
        peer = self._peer
        assert peer is not None
        assert peer.stdin is not None
        assert peer.stdout is not None
        peer.stdin.write(msgspec.json.encode(request).decode() + "\n")
        peer.stdin.flush()
        answer = peer.stdout.readline()
        assert answer, (self._folder / "peer.log").read_text()[-3000:]
        return msgspec.json.decode(answer, type=PeerAnswer)


def _joined(log: Path) -> None:
    """Wait until the agent with this log has joined."""
    until(lambda: "joined" in log.read_text(), log)


@asynccontextmanager
async def _trajectories(client: Client) -> AsyncIterator[list[TrajectoryHandle]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(client.trajectory(memory_mb=64))
            for _ in range(IN_FLIGHT)
        ]


async def _noops(callers: list[TrajectoryHandle], actions: int) -> None:
    async def caller(trajectory: TrajectoryHandle) -> None:
        for _ in range(actions // len(callers)):
            result = await trajectory.run(["true"], kind="noop")
            assert result.ok, result.reason

    await asyncio.gather(*(caller(one) for one in callers))


async def _ours(client: Client, batch: list[Plan], shop: SuiteFiles, cores: int) -> PeerAnswer:
    acts: list[float] = []
    failed = 0

    async def live(plan: Plan) -> None:
        nonlocal failed
        async with client.trajectory(task="swe", source=shop.image) as trajectory:
            for action in _actions(plan, shop, cores):
                began_at = perf_counter()
                cpu = between(1, action.cpus) if action.cpus > 1 else 1
                kind = "swe/tool" if action.cpus == 1 else "swe/test"
                result = await trajectory.run(action.argv, kind=kind, cpu=cpu)
                acts.append(perf_counter() - began_at)
                failed += not result.ok
                await asyncio.sleep(action.think_s)

    began_at = perf_counter()
    await asyncio.gather(*map(live, batch))
    return PeerAnswer(took_s=perf_counter() - began_at, acts_s=acts, failed=failed)


def _request(batch: list[Plan], shop: SuiteFiles, most: int) -> TraceRequest:
    return TraceRequest(
        image=shop.image, trajectories=[_actions(plan, shop, most) for plan in batch]
    )


def _actions(plan: Plan, shop: SuiteFiles, most: int) -> list[PeerAction]:
    """Tools use one core; the suite spreads over as many as it gets."""
    tools = [
        PeerAction(argv=shop.tool(work_s), cpus=1, think_s=think_s)
        for work_s, think_s in zip(plan.tools, plan.thinks, strict=True)
    ]
    return [*tools, PeerAction(argv=shop.suite(plan.tests), cpus=most, think_s=0.0)]


def _print(output: Printer, figures: RayFigures) -> None:
    output.table(
        f"No-ops per second, {figures.cores} cores a worker",
        ["", "p50", "least", "most", "CPU us each"],
        [
            [one.name, *(f"{of(one.per_s):.0f}" for of in (median, min, max)), _cpu(one)]
            for one in figures.rates
        ],
    )
    output.console.print(
        f"Two agents: {figures.times_tasks:.2f}x Ray tasks (goal {TASKS_AT_LEAST:g}x), "
        f"{figures.times_calls:.2f}x awaited actor calls (goal {CALLS_AT_LEAST:g}x). One agent: "
        f"TLS is {figures.tcp_of_unix:.2f}x of a unix socket (goal {TCP_AT_LEAST:g}x). CPU time: "
        f"a task costs {figures.cpu_of_tasks:.2f}x, a call {figures.cpu_of_calls:.2f}x.",
        soft_wrap=True,
    )
    output.table(
        f"Coding trace: {figures.trajectories} trajectories on {figures.cores} cores",
        ["", "mean ACT s", "p99 s", "makespan s", "failed"],
        [
            [
                row.name,
                f"{row.mean_s():.2f}",
                f"{row.p99_s():.1f}",
                f"{mean(row.makespan_s):.1f}",
                str(row.failed),
            ]
            for row in figures.acts
        ],
    )
    output.console.print(
        f"Mean ACT {figures.better_than_one:.2f}x better than Ray tasks with one CPU, "
        f"{figures.better_than_largest:.2f}x better than with the largest size (goal "
        f"{ACT_AT_LEAST:g}x). Load afterwards {figures.load_after}.",
        soft_wrap=True,
    )


def _cpu(row: RateRow) -> str:
    return f"{median(row.cpu_us):.0f}"
