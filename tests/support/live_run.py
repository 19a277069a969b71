"""A trace through a whole orchestrator on virtual time, and random traces to feed it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import looptime
from hypothesis import strategies as st
from msgspec import structs

from artangram.core.ids import ActionId, JobId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Action, ActionRecord
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    QuotaSpec,
    ServiceSpec,
    node_ids,
)
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.managers.agent import SandboxSpec
from artangram.managers.call import ApiCall, Call, FunctionCall, ServiceCall
from artangram.managers.cpu import CpuManager
from artangram.observe.journalmemory import MemoryJournal
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory, TraceTurn
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import Opening, Submission
from artangram.orchestrator.recovery import Setup
from artangram.sandbox import Command, Limits
from artangram.sim.beliefs import Beliefs, beliefs
from artangram.testing.physics import PhysicsAgent, PhysicsCarrier, World
from artangram.testing.virtual import VirtualClock

CPU = Resource("cpu")
Ended = dict[ActionId, ActionRecord]
COMMAND = Command(argv=("work",))


class LiveRun:
    """The same trace through the orchestrator on virtual time."""

    def __init__(
        self,
        trace: Trace,
        setup: Setup,
        believed: str,
        *,
        journal: MemoryJournal | None = None,
    ) -> None:
        self.trace = trace
        self.setup = setup
        self.beliefs: Beliefs = beliefs(believed, 0)
        self.records: Ended = {}
        self.journal = journal or MemoryJournal(keeps_entries=True)
        self.clock = VirtualClock()
        self.world = World(setup.cluster, self.clock)
        spec = setup.cluster.pools[CPU]
        assert isinstance(spec, CpuSpec)
        nodes = node_ids(CPU, spec.nodes)
        self.orchestrator = Orchestrator(
            setup,
            manager=CpuManager({node: PhysicsAgent(node, self.world) for node in nodes}),
            journal=self.journal,
            clock=self.clock,
            carriers=dict.fromkeys(
                (ServiceCall, FunctionCall, ApiCall), PhysicsCarrier(self.world)
            ),
        )

    async def run(self) -> Ended:
        await self.orchestrator.begin()
        jobs = dict.fromkeys(trajectory.job for trajectory in self.trace.trajectories)
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                for trajectory in self.trace.trajectories:
                    if trajectory.job == job:
                        group.create_task(self.live(trajectory))
        await self.orchestrator.aclose()
        return self.records

    async def live(self, trajectory: TraceTrajectory) -> None:
        await self.clock.sleep_until(trajectory.arrive_s)
        name = trajectory.trajectory
        place = SandboxSpec(limits=Limits(memory_mb=trajectory.memory_mb, disk_mb=1))
        self.orchestrator.open(
            Opening(trajectory=name, job=trajectory.job, task=trajectory.task, place=place)
        )
        number = 0
        for turn in trajectory.turns:
            if turn.think_s:
                await self.clock.sleep_until(self.clock.now() + turn.think_s)
            for action in turn.actions:
                number += 1
                await self.act(trajectory, action, ActionId(f"{name}/{number}"))
        self.orchestrator.close(name)

    async def act(self, trajectory: TraceTrajectory, truth: TraceAction, name: ActionId) -> None:
        self.world.truth[name] = truth
        action = Action(
            id=name,
            kind=truth.kind,
            needs=self.beliefs.needs(truth),
            job=trajectory.job,
            task=trajectory.task,
            trajectory=trajectory.trajectory,
            work_s=self.beliefs.work_s(truth),
            timeout_s=truth.timeout_s,
            repeatable=truth.repeatable,
            tokens=self.beliefs.tokens(truth),
        )
        call = None if action.needs.of(CPU) else call_of(action.needs)
        submission = Submission(action=action, command=None if call else COMMAND, call=call)
        receipt = self.orchestrator.submit(submission)
        self.records[name] = (await receipt.ended).record


def call_of(needs: Needs) -> Call:
    """What an action without cores does."""
    if needs.service is not None:
        return ServiceCall(service=needs.service, body=b"")
    resource = needs.amounts[0][0]
    if resource == "functions":
        return FunctionCall(function="f", body=b"")
    return ApiCall(api=resource)


def on_virtual_time(
    work: Coroutine[Any, Any, dict[ActionId, ActionRecord]],
) -> Ended:
    loop = looptime.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


ELASTIC = parse_needs({"cpu": {"min": 1, "max": 6}}, elastic="cpu", speedup={"amdahl": 0.1})
WIDE = parse_needs({"cpu": {"choices": [2, 4]}}, elastic="cpu", speedup={"power": 0.8})
LINEAR = parse_needs({"cpu": {"min": 1, "max": 2}}, elastic="cpu", speedup={"power": 1.0})
ONE, TWO, CALL = ({"cpu": 1}, {"cpu": 2}, {"cpu": 1, "search": 1})
NEEDS = [parse_needs(ONE), parse_needs(TWO), parse_needs(CALL), ELASTIC, WIDE]


def traces(
    needs: list[Needs],
    *,
    seconds: st.SearchStrategy[float],
    limits: st.SearchStrategy[float | None] = st.none() | st.just(2.0),  # noqa: B008 - a value
) -> st.SearchStrategy[Trace]:
    """Workloads whose actions need any of `needs`, with times drawn from `seconds`."""
    actions = st.builds(
        TraceAction,
        kind=st.sampled_from(["tool", "test"]),
        needs=st.sampled_from(needs),
        work_s=seconds.filter(bool),
        fail_at_s=st.none() | st.just(0.75),
        timeout_s=limits,
    )
    turns = st.builds(TraceTurn, think_s=seconds, actions=st.lists(actions, max_size=3).map(tuple))
    trajectories = st.builds(
        TraceTrajectory,
        trajectory=st.just(TrajectoryId("")),
        turns=st.lists(turns, min_size=1, max_size=3).map(tuple),
        job=st.sampled_from([JobId("red"), JobId("blue")]),
        arrive_s=seconds,
        memory_mb=st.sampled_from([4, 100, 400]),
    )
    return st.lists(trajectories, min_size=1, max_size=10).map(_as_trace)


def with_tokens(trace: Trace, tokens: list[int]) -> Trace:
    """The same, where calls without cores use `tokens`, one after the other."""
    number = 0

    def counted(action: TraceAction) -> TraceAction:
        nonlocal number
        number += 1
        used = None if action.needs.of(CPU) else tokens[number % len(tokens)]
        return structs.replace(action, tokens=used)

    def of_turn(turn: TraceTurn) -> TraceTurn:
        return structs.replace(turn, actions=tuple(map(counted, turn.actions)))

    trajectories = tuple(
        structs.replace(one, turns=tuple(map(of_turn, one.turns))) for one in trace.trajectories
    )
    return structs.replace(trace, trajectories=trajectories)


def _as_trace(trajectories: list[TraceTrajectory]) -> Trace:
    named = (
        structs.replace(trajectory, trajectory=TrajectoryId(f"t{number}"))
        for number, trajectory in enumerate(trajectories)
    )
    return Trace(name="random", train_s=0.0, trajectories=tuple(named))


ANY_S = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]) | st.floats(0.001, 60.0)


def a_mixed_cluster() -> ClusterSpec:
    """Devices that hold one of two services at a time, slots, two APIs, and cores."""
    gpu, small = Resource("gpu"), ServiceSpec(pool=Resource("gpu"), weights_mb=600, batch=2)
    return ClusterSpec(
        pools={
            CPU: CpuSpec(nodes=1, cores=3, memory_mb=1000, create_s=0.3, overhead_s=0.01),
            gpu: GpuSpec(nodes=1, devices=2, memory_mb=1000, restore_mb_per_s=1000.0),
            Resource("functions"): FunctionsSpec(ceiling=2, cold_s=0.4, idle_s=5.0),
            Resource("search"): QuotaSpec(concurrency=2, limit=5, window_s=4.0),
            Resource("fetch"): QuotaSpec(concurrency=1),
        },
        services={
            ServiceId("judge"): small,
            ServiceId("teacher"): structs.replace(small, degrees=(1, 2), batch=1),
        },
        shares={JobId("red"): 2.0},
    )


MIXED = [
    *NEEDS,
    parse_needs({"gpu": 1}, service="judge"),
    parse_needs({"gpu": {"choices": [1, 2]}}, elastic="gpu", service="teacher"),
    parse_needs({"functions": 1}),
    parse_needs({"search": 1}),
    parse_needs({"search": 1, "fetch": 1}),
]
