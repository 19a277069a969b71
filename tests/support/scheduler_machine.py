"""A machine that drives the real scheduler with random events and checks what it promises.

`machine(policy_name)` is for `run_state_machine_as_test`. Two schedulers are fed the same events;
`LiveCounts` keeps the books from the decisions of the first, `Watch` sees who passes whom.
"""

from collections.abc import Callable

from builders import CPU, an_action
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from scheduler_books import Life, LiveCounts
from scheduler_idle import check_no_idle_cores
from scheduler_nodes import LARGE, SELECTORS, NodeRules
from scheduler_watch import IN_LINE, Watch
from scheduler_world import (
    ELASTIC,
    FUNCTIONS,
    GPU,
    IMPOSSIBLE,
    JUDGE,
    LENT_CORES,
    OTHERS,
    RIGID,
    SEARCH,
    SEVERAL,
    Shape,
    a_full_cluster,
)

from artangram.core.ids import ActionId, JobId, NodeId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import CpuSpec
from artangram.core.scheduling.events import (
    Cancelled,
    ClockTicked,
    Event,
    Finished,
    ServiceLost,
    Submitted,
    Throttled,
    TrajectoryClosed,
    TrajectoryOpened,
)
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.lease import Devices
from artangram.core.scheduling.policies.base import WaitReason
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.policies.elastic import PASS_S
from artangram.core.scheduling.scheduler import MOST_ATTEMPTS, Scheduler

GAPS = [0.0, 0.0, 0.0, 0.01, 0.3, 5.0, 60.0]
ENDS = [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INFRA_FAILED]
STATIC = {"static", "pods", "overcommit", "unmanaged"}
"""Policies under which a service runs only where it was deployed."""


class SchedulerMachine(NodeRules):
    """Random events, time that never goes back, and a look at everything after each of them."""

    policy_name = "elastic"

    @property
    def base(self) -> str:
        return self.policy_name.partition(":")[0]

    @initialize(
        nodes=st.sampled_from([1, 1, 2]),
        cores=st.sampled_from([4, 8]),
        numa=st.sampled_from([1, 2]),
        penalty=st.sampled_from([0.0, 0.1, 0.6]),
        memory_mb=st.lists(st.sampled_from([10, 40, 70, 100]), max_size=3),
    )
    def build(
        self, nodes: int, cores: int, numa: int, penalty: float, memory_mb: list[int]
    ) -> None:
        self.cluster = a_full_cluster(nodes, cores, numa=numa, penalty=penalty)
        self.watch = Watch(self.policy_name)
        chosen = policy(self.policy_name)
        self.scheduler = Scheduler(self.cluster, self.watch.watched(chosen))
        self.twin = Scheduler(self.cluster, chosen)
        is_deployed = self.base in STATIC
        self.books = LiveCounts(self.cluster, chosen, is_deployed=is_deployed)
        self.now = 0.0
        self.event_at = 0.0
        self.count = 0
        self.is_sound = True
        self.open: list[TrajectoryId] = []
        self.closing: set[TrajectoryId] = set()
        self.lost: list[tuple[Resource, NodeId]] = []
        for size in memory_mb:
            self.open_trajectory(size)

    def tell(self, *events: Event) -> None:
        """Feed both schedulers and carry out what they agree on."""
        self.is_sound = False
        decisions = self.scheduler.handle_all(events, self.now)
        assert decisions == self.twin.handle_all(events, self.now), "twins disagree"
        self.books.carry_out(decisions, self.now)
        for trajectory in list(self.closing):
            if not self._lives_of(trajectory):
                self.closing.remove(trajectory)
                self.books.leaving[trajectory] = None
        self.watch.check(self.now)
        self.event_at = self.now

    def _lives_of(self, trajectory: TrajectoryId) -> list[Life]:
        lives = self.books.lives.values()
        return [life for life in lives if life.action.trajectory == trajectory]

    @rule(gap=st.sampled_from(GAPS))
    def pass_time(self, gap: float) -> None:
        self.now += gap

    @rule(
        memory_mb=st.sampled_from([0, 10, 40, 70, 100, 101]),
        job=st.sampled_from(["x", "x", "y"]),
        selector=st.sampled_from(SELECTORS),
        image=st.sampled_from(["", "python"]),
    )
    def open_trajectory(
        self,
        memory_mb: int,
        job: str = "x",
        selector: dict[str, str] | None = None,
        image: str = "",
    ) -> None:
        self.count += 1
        trajectory = TrajectoryId(f"t{self.count}")
        opened = TrajectoryOpened(trajectory, memory_mb, JobId(job), selector or {}, image)
        self.open.append(trajectory)
        self.books.open(opened)
        self.tell(opened)

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, 100))
    def close_trajectory(self, index: int) -> None:
        trajectory = self.open.pop(index % len(self.open))
        waiting = [life.action.id for life in self._lives_of(trajectory) if not life.is_running]
        self.closing.add(trajectory)
        self.tell(TrajectoryClosed(trajectory))
        assert all(self.books.outcomes[name] is Outcome.CANCELLED for name in waiting)
        assert all(life.stop is not None for life in self._lives_of(trajectory))

    @rule(
        shapes=st.lists(st.sampled_from(RIGID + ELASTIC), min_size=1, max_size=4),
        place=st.integers(0, 5),
        job=st.sampled_from(["x", "x", "y"]),
        work_s=st.sampled_from([None, 0.05, 1.0, 30.0, 1000.0]),
        repeatable=st.booleans(),
    )
    def submit_cores(
        self, shapes: list[Shape], place: int, job: str, work_s: float | None, repeatable: bool
    ) -> None:
        self._submit(shapes, place, job=job, work_s=work_s, repeatable=repeatable)

    @rule(
        shapes=st.lists(st.sampled_from(OTHERS + SEVERAL * 2), min_size=1, max_size=3),
        place=st.integers(0, 5),
        job=st.sampled_from(["x", "x", "y"]),
        work_s=st.sampled_from([0.05, 1.0, 30.0]),
        repeatable=st.booleans(),
    )
    def submit_others(
        self, shapes: list[Shape], place: int, job: str, work_s: float, repeatable: bool
    ) -> None:
        self._submit(shapes, place, job=job, work_s=work_s, repeatable=repeatable)

    @rule(
        shape=st.sampled_from(LENT_CORES),
        cores=st.sampled_from([4, 8]),
        gap=st.sampled_from(GAPS),
        job=st.sampled_from(["x", "x", "y"]),
    )
    def submit_a_wide_one_beside_a_loan(
        self, shape: Shape, cores: int, gap: float, job: str
    ) -> None:
        """Where running work gives way, only loans make an overdue action wait."""
        self._submit([shape], 0, job=job)
        self._submit([({"cpu": cores}, None, None)], 0, job=job, work_s=0.05)
        self.now += gap

    @rule(shape=st.sampled_from(RIGID + ELASTIC + SEVERAL), slack=st.sampled_from([0.0, 1.0, 30.0]))
    def submit_with_a_deadline(self, shape: Shape, slack: float) -> None:
        self._submit([shape], 0, deadline_at=self.now + slack, repeatable=True)

    @rule(shape=st.sampled_from(IMPOSSIBLE))
    def submit_the_impossible(self, shape: Shape) -> None:
        (name,) = self._submit([shape], 0)
        assert self.books.outcomes[name] is Outcome.REFUSED

    @rule()
    def submit_to_a_closed_trajectory(self) -> None:
        self.count += 1
        action = an_action(f"a{self.count}", 1, trajectory="closed")
        self.books.submitted(action, self.now)
        self.tell(Submitted(action))
        assert self.books.outcomes[action.id] is Outcome.REFUSED

    def _submit(self, shapes: list[Shape], place: int, **fields: object) -> list[ActionId]:
        events = []
        for needs, elastic, service in shapes:
            self.count += 1
            # In one of the open trajectories, mostly; 0 is none.
            trajectory = self.open[-place % len(self.open)] if place and self.open else None
            action = an_action(
                f"a{self.count}",
                needs,
                elastic=elastic,
                service=service,
                trajectory=trajectory,
                **{"kind": f"kind{self.count % 3}"} | fields,
            )
            self.books.submitted(action, self.now)
            events.append(Submitted(action))
        self.tell(*events)
        return [event.action.id for event in events]

    @precondition(lambda self: self.books.running())
    @rule(index=st.integers(0, 100), outcome=st.sampled_from(ENDS))
    def finish(self, index: int, outcome: Outcome) -> None:
        running = self.books.running()
        self._finish(running[index % len(running)], outcome)

    @precondition(lambda self: self.books.running())
    @rule(gap=st.sampled_from(GAPS))
    def finish_the_oldest(self, gap: float) -> None:
        self.now += gap
        self._finish(min(self.books.running(), key=lambda life: life.started_at))

    def _finish(self, life: Life, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        action, is_last = life.action, life.attempt >= MOST_ATTEMPTS
        is_late = action.deadline_at is not None and action.deadline_at <= self.now
        repeats = action.repeatable and not (is_last or is_late or life.stop)
        self.books.release(life)
        self.tell(Finished(action.id, outcome, attempt=life.attempt))
        if outcome is Outcome.INFRA_FAILED and repeats:
            assert action.id in self.books.lives, f"{action.id} was not repeated"
        elif outcome is Outcome.SUCCEEDED:
            assert self.books.outcomes[action.id] is outcome
        else:
            assert self.books.outcomes[action.id] is (life.stop or outcome)

    @precondition(lambda self: self.books.running())
    @rule(index=st.integers(0, 100))
    def finish_a_forgotten_attempt(self, index: int) -> None:
        running = self.books.running()
        life = running[index % len(running)]
        self.tell(Finished(life.action.id, attempt=life.attempt - 1))
        assert life.is_running

    @precondition(lambda self: self.books.lives)
    @rule(index=st.integers(0, 100))
    def cancel(self, index: int) -> None:
        life = list(self.books.lives.values())[index % len(self.books.lives)]
        was_running = life.is_running
        self.tell(Cancelled(life.action.id))
        if was_running:
            assert life.stop is not None
        else:
            assert self.books.outcomes[life.action.id] is Outcome.CANCELLED

    @precondition(lambda self: self.books.wake_at is not None)
    @rule(late_s=st.sampled_from([0.0, 0.0, PASS_S, 5.0, 100.0]))
    def tick(self, late_s: float) -> None:
        self._tick(late_s)

    def _tick(self, late_s: float = 0.0) -> None:
        assert self.books.wake_at is not None
        at, is_past_pass = max(self.now, self.books.wake_at) + late_s, late_s >= PASS_S
        self.now, self.books.wake_at = at, None
        self.tell(ClockTicked())
        if is_past_pass:
            self._check_idle()

    @rule()
    def tick_after_a_pass(self) -> None:
        self.now = max(self.now, self.event_at + PASS_S)
        self.tell(ClockTicked())
        self._check_idle()

    @rule(resource=st.sampled_from([SEARCH, JUDGE]), pause_s=st.sampled_from([0.0, 1.0, 20.0]))
    def throttle(self, resource: Resource, pause_s: float) -> None:
        calls = self.books.calls[resource]
        calls.closed_until = max(calls.closed_until, self.now + pause_s)
        self.tell(Throttled(resource, self.now + pause_s))

    @rule(index=st.integers(0, 100))
    def lose_a_service(self, index: int) -> None:
        leases = [life.lease for life in self.books.running() if life.lease is not None]
        used = [a for lease in leases for a in lease.allocations if isinstance(a, Devices)]
        nowhere = Devices(GPU, NodeId("gpu-0"), 0, 1, ServiceId("a"))
        at = used[index % len(used)] if used else nowhere
        self.tell(ServiceLost(GPU, at.node, at.first, at.degree, at.service))

    def explain(self, life: Life) -> Explanation:
        return self.scheduler.explain(life.action.id, self.event_at)

    @invariant()
    def promises_hold(self) -> None:
        self._check_explanations()
        self._check_deadlines()
        self._check_heads()
        self.is_sound = True

    def _check_explanations(self) -> None:
        for life in self.books.running():
            assert self.explain(life).state == "running"
        for life in self.books.waiting():
            said = self.explain(life)
            assert said.state == "waiting"
            assert said.hindrances, f"{life.action.id} waits, but {said.summary}"
            assert all(h.because and h.starts_when for h in said.hindrances)
        assert self.scheduler.num_waiting() == len(self.books.waiting())

    def _check_deadlines(self) -> None:
        for life in self.books.lives.values():
            deadline = life.action.deadline_at
            if deadline is not None and deadline <= self.event_at:
                assert life.stop is not None, f"{life.action.id} goes on after its deadline"

    def _check_heads(self) -> None:
        """The first of a line waits only for what is not free."""
        in_line = {SEARCH, JUDGE, FUNCTIONS}
        if self.base in IN_LINE - {"tangram"}:
            in_line.add(CPU)
        if self.base in {"unmanaged", "pods", "overcommit"}:
            in_line -= {SEARCH, JUDGE}  # their tries come in their own time
        for life in self.books.waiting():
            said = self.explain(life).hindrances
            if len(said) == 1 and said[0].resource in in_line and said[0].ahead == 0:
                assert said[0].needed > said[0].free, f"{life.action.id} fits and waits: {said}"
                self._check_free(said[0])

    def _check_free(self, said: WaitReason) -> None:
        """What is said to be free is free; of one node only, since it does not say which."""
        cpu_nodes = [node for node, resource in self.books.nodes.items() if resource == CPU]
        if said.resource == FUNCTIONS:
            free = self.books.free_slots(FUNCTIONS)
            assert said.free == free, f"{said.free} are said to be free, not {free}"
        if said.resource == CPU and len(cpu_nodes) == 1:
            free = self.books.free_cores(cpu_nodes[0])
            assert said.free == free, f"{said.free} are said to be free, not {free}"

    def _check_idle(self) -> None:
        if self.watch.is_elastic():
            check_no_idle_cores(self.books, self.explain)

    def teardown(self) -> None:
        """In the end everybody is reported, and everything can be had again.

        Not after a failure, which another one would hide.
        """
        if not getattr(self, "is_sound", False):
            return
        while self.lost:
            self.join_a_node(False)
        while self.books.draining:
            self.undrain_a_node(0)
        self._drain()
        for trajectory in list(self.open):
            self.close_trajectory(self.open.index(trajectory))
        self._drain()
        while self.books.leaving:
            self.sandbox_goes(0)
        assert not self.books.lives
        assert set(self.books.outcomes) == self.books.submitted_ids
        self._check_everything_is_free()

    def _drain(self) -> None:
        for _ in range(1000):
            self.promises_hold()
            running = self.books.running()
            if not self.books.lives:
                return
            if running:
                self._finish(running[0])
            elif self.books.leaving:
                self.sandbox_goes(0)
            elif self.books.wake_at is not None:
                self._tick()
            else:
                self._make_room()
        raise AssertionError(f"{self.books.waiting()} never ended")

    def _make_room(self) -> None:
        """Only memory of a trajectory that does nothing may still be in the way."""
        idle = [t for t in self.open if not self._lives_of(t)]
        stuck = {life.action.id: self.explain(life).summary for life in self.books.waiting()}
        if idle:
            self.close_trajectory(self.open.index(idle[0]))
        else:
            # What only a lost node could hold waits until such a node is there again.
            has_large = LARGE in self.books.specs.values()
            assert not has_large, f"nothing runs, nothing will wake it, and these wait: {stuck}"
            self.join_a_new_node(LARGE)

    def _check_everything_is_free(self) -> None:
        """Nothing leaked: whoever asks for all of everything gets it at once."""
        self.reconfigure(concurrency=2, limit=3, ceiling=2, share=3.0)
        self.now = max([self.now, *(c.closed_until for c in self.books.calls.values())]) + 100.0
        cpu = self.cluster.pools[CPU]
        assert isinstance(cpu, CpuSpec)
        shapes: list[Shape] = [({"search": 2}, None, None), ({"judge": 2}, None, None)]
        shapes += [({"functions": 2}, None, None)]
        is_deployed = self.base in STATIC
        shapes += [({"gpu": 4}, None, "a")] * (1 if is_deployed else cpu.nodes)
        # So long that nobody would rather wait for somebody else's copy of a service.
        probe = {"kind": "probe", "work_s": 1000.0}
        asked = self._submit(shapes, 0, **probe)
        specs = [self.books.specs[node] for node in self._cpu_nodes()]
        for spec in sorted(specs, key=lambda spec: (spec.memory_mb, spec.cores), reverse=True):
            if not self.policy_name.startswith("pods"):
                self.open_trajectory(memory_mb=spec.memory_mb)
            asked += self._submit([({"cpu": spec.cores}, None, None)], 1, **probe)
        late = [name for name in asked if not self.books.lives[name].is_running]
        assert not late, f"{[self.explain(self.books.lives[name]) for name in late]}"


def machine(name: str) -> Callable[[], SchedulerMachine]:
    """A machine that drives the policy called `name`."""
    return type(f"Machine_{name}", (SchedulerMachine,), {"policy_name": name})
