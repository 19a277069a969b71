"""A run under way on the node of this process, as its agent sees it, and how it ended."""

import asyncio
from collections.abc import Callable

from msgspec import structs

from artangram.core.scheduling.action import Outcome
from artangram.managers.agent import Run, RunId, RunResult
from artangram.managers.runlimit import RunLimit
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.process import SandboxProcess
from artangram.sandbox.protocol import Command, CommandResult, Output, Sandbox


class LocalRun:
    """A run under way, and the cores it has (or will start with).

    Most are begun at once in a sandbox that waits for them; one that has to wait has a task.
    """

    __slots__ = (
        "cores",
        "ended",
        "id",
        "is_late",
        "is_told",
        "limit",
        "over",
        "process",
        "run",
        "sandbox",
        "task",
    )

    def __init__(self, run: Run) -> None:
        self.run = run
        self.id = RunId(run.lease.action_id, run.lease.attempt)
        self.cores = run.command.cores if run.command is not None else ()
        self.sandbox: Sandbox | None = None
        #: Of a parallel command, from its start on.
        self.process: SandboxProcess | None = None
        self.ended: RunResult | None = None
        self.is_told = False
        #: Was it ended because its time limit is over?
        self.is_late = False
        self.limit: RunLimit | None = None
        self.task: asyncio.Task[None] | None = None
        #: Made by a caller that waits for its end.
        self.over: asyncio.Future[None] | None = None

    @property
    def is_parallel(self) -> bool:
        return self.run.command is not None and self.run.command.parallel

    def end_program(self) -> None:
        """Its time limit is over."""
        if self.process is not None:
            self.process.end()
        elif self.sandbox is not None:
            self.sandbox.end_command()

    async def resized(self) -> None:
        """Give it the cores that it has now; one that begins gets those it has by then."""
        if self.is_told:
            return  # The next run there has cores of its own.
        try:
            if self.process is not None:
                await self.process.resize(self.cores)
            elif self.sandbox is not None and not self.is_parallel:
                await self.sandbox.resize(self.cores)
        except SandboxError:
            return  # It died; its run is about to say so.

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        elif self.sandbox is not None:
            self.sandbox.end_command()


async def streamed(
    sandbox: Sandbox, command: Command, on_output: Callable[[Output], None]
) -> CommandResult:
    """Run `command`; `on_output` hears what it prints, and its result holds all of it, too."""
    printed: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    async for piece in sandbox.stream(command):
        if isinstance(piece, CommandResult):
            stdout, stderr = (b"".join(printed[name]) for name in ("stdout", "stderr"))
            return structs.replace(piece, stdout=stdout, stderr=stderr)
        printed[piece.channel].append(piece.data)
        on_output(piece)
    raise SandboxError("the command's output ended without a result")


def ended_with(running: LocalRun, result: CommandResult, *, began_at: float) -> RunResult:
    run = running.run
    assert run.command is not None
    if running.is_late and result.exit_code != 0:  # Else it ended well at the last moment.
        result = structs.replace(result, timed_out=True)
    outcome, reason = how_it_ended(run.command, result, limit_s=run.limit_s)
    return RunResult(
        run=running.id,
        outcome=outcome,
        reason=reason,
        began_at=began_at,
        result=result,
    )


def failed_with(running: LocalRun, error: SandboxError) -> RunResult:
    return RunResult(run=running.id, outcome=Outcome.INFRA_FAILED, reason=str(error))


def how_it_ended(
    command: Command, result: CommandResult, *, limit_s: float | None
) -> tuple[Outcome, str]:
    """The outcome of `command`, and why; `limit_s` is its time limit if its agent counts that."""
    if result.timed_out:
        return Outcome.TIMED_OUT, f"it ran longer than {limit_s or command.timeout_s:g} s"
    outcome = Outcome.SUCCEEDED if result.exit_code == 0 else Outcome.FAILED
    if result.out_of_memory:
        return outcome, "it ran out of memory"
    if result.start_error:
        return outcome, f"{command.argv[0]}: {result.start_error}"
    if result.signal:
        return outcome, f"signal {result.signal} ended it"
    return outcome, "" if result.exit_code == 0 else f"exit code {result.exit_code}"
