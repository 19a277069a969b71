"""The node agent in this process, over any sandbox provider.

- One sandbox per trajectory, and one run at a time in it: a second one waits for the first.
  Parallel ones run beside it and beside each other.
- A sandbox that died stays known as dead, so that a run which expects its files fails for that
  reason instead of finding an empty place.
- When the machine has less free memory than `least_free_mb`, idle sandboxes hibernate, the longest
  idle first, until it has enough again or all do.
"""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from msgspec import structs

from artangram.aio import Background, uncancelled
from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.functions.function import FunctionRunner
from artangram.managers.agent import Listener, NodeInventory, Population, Run, RunId, RunResult
from artangram.managers.archives import LocalArchives
from artangram.managers.examination import NodeExamination
from artangram.managers.localrun import LocalRun, ended_with, failed_with, streamed
from artangram.managers.machine import free_memory_mb
from artangram.managers.memorywatch import MemoryWatch
from artangram.managers.nodefunctions import FunctionCalls
from artangram.managers.providers import NodeProviders
from artangram.managers.runlimit import RunLimit
from artangram.managers.sandboxes import NodeSandboxes
from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.offers import ProviderOffer
from artangram.sandbox.process import ProcessBegan, ProcessInput, SandboxProcess, check_signal
from artangram.sandbox.protocol import (
    MAX_READ_BYTES,
    Command,
    CommandResult,
    Output,
    Sandbox,
    SandboxProvider,
    Snapshot,
)
from artangram.sandbox.snapshot import HELD, SnapshotInfo, SnapshotTerms

WARM = 1
"""Sandboxes kept ready of a kind that was asked for."""
LEAST_FREE_MB = 256
"""Below this the kernel is about to kill processes."""


class LocalAgent:
    """See `agent.NodeAgent`."""

    def __init__(
        self,
        node: NodeId,
        *providers: SandboxProvider,
        now: Callable[[], float],
        warm: int = 0,
        least_free_mb: int = 0,
        function_slots: int = 0,
        free_mb: Callable[[], int] = free_memory_mb,
    ) -> None:
        self.node = node
        self._providers = NodeProviders(providers)
        self.archives = LocalArchives(self._providers)
        self.calls = FunctionCalls(function_slots)
        self.functions: FunctionRunner | None = None
        self._now = now
        self.incarnation = uuid4().hex
        self._listener: Listener | None = None
        self._sandboxes = NodeSandboxes(self._providers, warm=warm)
        self._turns: dict[TrajectoryId, asyncio.Lock] = {}
        #: Held while a trajectory's sandbox is made.
        self._making: dict[TrajectoryId, asyncio.Lock] = {}
        self._running: dict[ActionId, LocalRun] = {}
        #: Unacknowledged ends; as many as were started and not acknowledged, so bounded by those.
        self._ended: dict[RunId, RunResult] = {}
        self._background = Background(self._on_error)
        self._memory = MemoryWatch(
            least_free_mb,
            free_mb,
            is_busy=lambda: bool(self._running),
            relieve=self.relieve,
            background=self._background,
        )

    def __repr__(self) -> str:
        return (
            f"<LocalAgent {self.node}: {len(self._sandboxes.all)} sandboxes, "
            f"{len(self._running)} running>"
        )

    async def attach(self, listener: Listener) -> NodeInventory:
        self._listener = listener
        return self.inventory()

    async def ping(self) -> Population:
        return Population(
            sandboxes=len(self._sandboxes.all), hibernated=self._sandboxes.num_hibernated
        )

    async def examine(self, data: bytes = b"") -> NodeExamination:
        return await self._providers.examine(data)

    def inventory(self) -> NodeInventory:
        return NodeInventory(
            incarnation=self.incarnation,
            trajectories=tuple(self._sandboxes.all),
            running=tuple(running.id for running in self._running.values()),
            ended=tuple(self._ended.values()),
            offers=self.offers,
        )

    @property
    def offers(self) -> tuple[ProviderOffer, ...]:
        return self._providers.offers

    def start(self, run: Run) -> None:
        running = LocalRun(run)
        if run.limit_s is not None:
            on_over = partial(self._on_late, running)
            running.limit = RunLimit(run.limit_s, pace=run.lease.pace, on_over=on_over)
        self._running[run.lease.action_id] = running
        if not self._begin(running):
            running.task = self._background.start(self._run(running))
            running.task.add_done_callback(partial(self._on_task_over, running))
        if not self._memory.is_awake:
            self._memory.wake()

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        running = self._running.get(action_id)
        if running is not None and running.limit is not None:
            running.limit.set_pace(pace)
        if running is None or not cores:
            return  # One that is preempted stays where it is: the kernel shares its cores.
        running.cores = cores
        if running.sandbox is not None:
            self._background.start(running.resized())

    def stop(self, action_id: ActionId) -> None:
        running = self._running.get(action_id)
        if running is not None:
            self._stop(running)

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None:
        process = self._process(action_id)
        if process is not None:
            await process.feed(given)
        elif given.stdin:
            raise BrokenPipeError(errno.EPIPE, "the process has ended")

    async def signal(self, action_id: ActionId, number: int) -> None:
        check_signal(number)
        process = self._process(action_id)
        if process is not None:
            await process.signal(number)

    def _process(self, action_id: ActionId) -> SandboxProcess | None:
        running = self._running.get(action_id)
        return None if running is None else running.process

    def acknowledge(self, run: RunId) -> None:
        self._ended.pop(run, None)

    async def read(
        self, trajectory: TrajectoryId, path: str, *, max_bytes: int = MAX_READ_BYTES
    ) -> bytes:
        async with self._sandboxes.using(trajectory) as sandbox:
            return await sandbox.read(path, max_bytes=max_bytes)

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        async with self._sandboxes.using(trajectory) as sandbox:
            await sandbox.write(path, data)

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms = HELD) -> Snapshot:
        async with self._sandboxes.using(trajectory) as sandbox:
            taken = await sandbox.snapshot(terms)
            return self._providers.made(taken, self._sandboxes.all[trajectory].place)

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return await self._providers.snapshots()

    async def forget(self, snapshot: Snapshot) -> bool:
        return await self._providers.forget(snapshot)

    async def close(self, trajectory: TrajectoryId) -> None:
        here = [one for one in self._running.values() if one.run.trajectory == trajectory]
        await self._stopped(here)
        self._turns.pop(trajectory, None)
        self._making.pop(trajectory, None)
        await uncancelled(self._sandboxes.remove(trajectory))

    async def aclose(self) -> None:
        await uncancelled(self._aclose())

    async def _aclose(self) -> None:
        self._listener = None
        self._memory.close()
        await self._stopped(list(self._running.values()))
        await self._background.close()
        await self.calls.aclose()
        await self._sandboxes.aclose()
        await self._providers.close()

    def _stop(self, running: LocalRun) -> None:
        running.ended = RunResult(run=running.id, outcome=Outcome.CANCELLED)
        try:
            running.stop()
        except SandboxError:
            # It takes no requests any more: only its own end ends what runs in it.
            assert running.sandbox is not None, f"{running.id} runs nowhere"
            self._background.start(running.sandbox.close())

    async def _stopped(self, runs: list[LocalRun]) -> None:
        """Return when all of them have been told to have ended."""
        loop = asyncio.get_running_loop()
        waits = [running.over or loop.create_future() for running in runs]
        for running, over in zip(runs, waits, strict=True):
            running.over = over
            self._stop(running)
        if waits:
            await asyncio.wait(waits)

    async def relieve(self) -> int:
        """Hibernate idle sandboxes until memory suffices; returns how many."""
        count = 0
        by_use = sorted(self._sandboxes.all.items(), key=lambda item: item[1].used_at)
        for trajectory, _ in by_use:
            if not self._is_idle(trajectory):
                continue  # It has become busy while others hibernated.
            if not self._memory.is_short:
                break
            # A run that comes meanwhile waits, and resumes it.
            async with self._turns.setdefault(trajectory, asyncio.Lock()):
                if trajectory in self._sandboxes.all:
                    # It died, which its next run will be told; or its files cannot be copied.
                    with contextlib.suppress(SandboxError):
                        count += await self._sandboxes.hibernate(trajectory)
        return count

    def _is_idle(self, trajectory: TrajectoryId) -> bool:
        runs = self._running.values()
        is_busy = any(running.run.trajectory == trajectory for running in runs)
        return trajectory in self._sandboxes.all and not is_busy

    def _begin(self, running: LocalRun) -> bool:
        """Start a run in its sandbox, if that is ready and nothing has to be awaited."""
        run = running.run
        turn = self._turns.get(run.trajectory)
        if run.command is None or run.streams or (turn is not None and turn.locked()):
            return False
        if run.command.parallel:
            return False
        place = self._sandboxes.all.get(run.trajectory)
        if place is None or place.hibernated is not None or not place.sandbox.is_alive:
            return False
        sandbox = place.sandbox
        try:
            began = sandbox.begin(run.command, partial(self._on_result, running, self._now()))
        except Exception:  # noqa: BLE001 - `_run` will meet it again, and tell.
            return False
        if began:
            running.sandbox = sandbox
            if running.limit is not None:
                running.limit.begin()
        return began

    def _on_late(self, running: LocalRun) -> None:
        """The time limit of a run is over: end it, and keep what it printed."""
        assert running.sandbox is not None, f"{running.run.id} runs nowhere"
        running.is_late = True
        try:
            running.end_program()
        except SandboxError:
            self._background.start(running.sandbox.close())

    def _on_result(
        self, running: LocalRun, began_at: float, result: CommandResult | SandboxError
    ) -> None:
        if running.ended is not None:
            pass  # It was stopped: its output is not wanted any more.
        elif isinstance(result, CommandResult):
            running.ended = ended_with(running, result, began_at=began_at)
        else:
            running.ended = failed_with(running, result)
        self._tell_end(running)

    async def _run(self, running: LocalRun) -> None:
        try:
            running.ended = await self._carried_out(running)
        except asyncio.CancelledError:
            pass  # It was stopped: its output is not wanted any more.
        except SandboxError as error:
            running.ended = failed_with(running, error)
        except ValueError as error:
            running.ended = RunResult(run=running.id, outcome=Outcome.FAILED, reason=str(error))
        except Exception as error:
            running.ended = RunResult(
                run=running.id, outcome=Outcome.INFRA_FAILED, reason=repr(error)
            )
            raise
        finally:
            self._tell_end(running)

    def _on_task_over(self, running: LocalRun, _: asyncio.Task[None]) -> None:
        """A task that was stopped before its first step ran no line, so its end is not told yet."""
        if not running.is_told:
            self._tell_end(running)

    def _tell_end(self, running: LocalRun) -> None:
        running.is_told = True
        if running.limit is not None:
            running.limit.end()
        ended = running.ended or RunResult(run=running.id, outcome=Outcome.CANCELLED)
        del self._running[ended.run.action_id]
        self._ended[ended.run] = ended
        place = self._sandboxes.all.get(running.run.trajectory)
        if place is not None:
            place.used_at = self._now()
        if running.over is not None and not running.over.done():
            running.over.set_result(None)
        if self._listener is not None:
            self._listener.on_ended(self.node, ended)

    async def _carried_out(self, running: LocalRun) -> RunResult:
        run = running.run
        if running.is_parallel:
            return await self._carried_out_beside(running)
        async with self._turns.setdefault(run.trajectory, asyncio.Lock()):
            asked_at = self._now()
            sandbox = await self._ready_sandbox(run)
            if run.command is None:
                # To make the sandbox is all of its work, and the next one is believed to take that.
                return RunResult(run=running.id, outcome=Outcome.SUCCEEDED, began_at=asked_at)
            began_at = self._now()
            running.sandbox = sandbox
            command = run.command
            if running.cores != command.cores:  # It was resized before it began.
                command = structs.replace(command, cores=running.cores)
            if running.limit is not None:
                running.limit.begin()
            result = await self._ran(sandbox, command, running)
        return ended_with(running, result, began_at=began_at)

    async def _carried_out_beside(self, running: LocalRun) -> RunResult:
        run, command = running.run, running.run.command
        assert command is not None
        running.sandbox = await self._ready_sandbox(run)
        command = structs.replace(command, cores=running.cores)
        on_output = partial(self._on_output, running.id)
        async with self._sandboxes.process(run.trajectory, command, on_output) as process:
            began_at, running.process = self._now(), process
            on_output(ProcessBegan(pid=process.pid))
            if running.cores != command.cores:  # It was resized while it began.
                await process.resize(running.cores)
            if running.limit is not None:
                running.limit.begin()
            result = await process.wait()
        return ended_with(running, result, began_at=began_at)

    def _on_output(self, run: RunId, piece: Output | ProcessBegan) -> None:
        if self._listener is not None:
            self._listener.on_output(run, piece)

    async def _ran(self, sandbox: Sandbox, command: Command, running: LocalRun) -> CommandResult:
        if not running.run.streams:
            return await sandbox.run(command)
        return await streamed(sandbox, command, partial(self._on_output, running.id))

    async def _ready_sandbox(self, run: Run) -> Sandbox:
        """The trajectory's sandbox, made if this is its first run."""
        async with self._making.setdefault(run.trajectory, asyncio.Lock()):
            if self._sandboxes.exists(run.trajectory):
                return await self._sandboxes.resumed(run.trajectory)
            if run.expects_files:
                raise SandboxGone(f"the sandbox of {run.trajectory} is gone, its files with it")
            return await self._sandboxes.make(run.trajectory, run.place)

    def _on_error(self, error: BaseException) -> None:
        """A run raised what no sandbox may raise: a defect of ours, which has to be seen."""
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": f"{self!r} failed", "exception": error})
