"""SWE-ReX's runtime and deployment on a trajectory's sandbox.

- `TrajectoryRuntime` has SWE-ReX's verbs; what they raise are SWE-ReX's own exceptions. A failure
  of infrastructure is `InfraFailed`, never an exit code.
- A session is a bash on a terminal; `execute` is an action of its own.
- For swe-rex 1.4; `pip install 'artangram[swerex]'`.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SessionNotInitializedError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    CloseBashSessionResponse,
    CloseResponse,
    Command,
    CommandResponse,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)

from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.integrations.bashterminal import BashTerminal, TerminalReply
from artangram.orchestrator.client import TrajectoryHandle

CTRL_C, CTRL_Z = b"\x03", b"\x1a"
LEAST_STARTUP_S = 30.0
"""SWE-ReX allows a second, which is for a bash that runs already; ours may have to queue."""
MOST_OUTPUT_BYTES = 32 << 20
ROUNDS_UNTIL_TOLD = 50
_MERGED = ("sh", "-c", 'exec "$@" 2>&1', "sh")


class TrajectoryRuntime(AbstractRuntime):
    """SWE-ReX's verbs in the sandbox of an open trajectory."""

    def __init__(self, trajectory: TrajectoryHandle) -> None:
        self.trajectory = trajectory
        self.logger = logging.getLogger("artangram.swerex")
        self._sessions: dict[str, BashTerminal] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                await self.trajectory.write("/tmp/.is-alive", b"")
        except (OSError, TimeoutError, InfraFailed, KeyError) as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=True)

    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session} already exists")
        timeout_s = max(LEAST_STARTUP_S, request.startup_timeout)
        terminal = await BashTerminal.open(self.trajectory, timeout_s=timeout_s)
        self._sessions[request.session] = terminal
        sourced = [f"source {path}" for path in request.startup_source]
        output = ""
        if sourced:
            output = (await terminal.run("\n".join(sourced), timeout_s=timeout_s)).text
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: BashAction | BashInterruptAction) -> BashObservation:
        terminal = self._session(action.session)
        try:
            if isinstance(action, BashInterruptAction):
                return await _interrupted(terminal, action)
            if action.is_interactive_command or action.is_interactive_quit:
                return await _typed(terminal, action)
            return await _run(terminal, action)
        except EOFError as error:
            del self._sessions[action.session]
            problem = f"session {action.session!r} has ended: {str(error)[-200:]!r}"
            raise SessionNotInitializedError(f"{problem}; create it again") from error

    async def close_session(self, request: CloseBashSessionRequest) -> CloseBashSessionResponse:
        await self._session(request.session).close()
        del self._sessions[request.session]
        return CloseBashSessionResponse()

    def _session(self, name: str) -> BashTerminal:
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def execute(self, command: Command) -> CommandResponse:
        given = command.command
        if command.shell:
            text = given if isinstance(given, str) else " ".join(given)
            argv = ["sh", "-c", text]
        else:
            argv = [given] if isinstance(given, str) else list(given)
        if command.merge_output_streams:
            argv = [*_MERGED, *argv]
        result = await self.trajectory.run(
            argv,
            timeout_s=command.timeout,
            environ=command.env,
            cwd=command.cwd or "",
            output_bytes=MOST_OUTPUT_BYTES,
        )
        if result.outcome is Outcome.TIMED_OUT:
            raise CommandTimeoutError(
                f"Timeout ({command.timeout}s) exceeded while running command"
            )
        if result.command is None or result.outcome is Outcome.INFRA_FAILED:
            raise InfraFailed(f"the command was lost: {result.reason}")
        if result.start_error:
            raise FileNotFoundError(result.start_error)
        stdout, stderr = (
            text.decode(errors="backslashreplace")
            for text in (result.command.stdout, result.command.stderr)
        )
        if command.check and result.exit_code != 0:
            problem = f"Command {given!r} failed with exit code {result.exit_code}. "
            problem += f"Stdout:\n{stdout!r}\nStderr:\n{stderr!r}"
            raise NonZeroExitCodeError(_said(command.error_msg, problem))
        return CommandResponse(stdout=stdout, stderr=stderr, exit_code=result.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        data = await self.trajectory.read(request.path)
        text = data.decode(request.encoding or "utf-8", request.errors or "strict")
        return ReadFileResponse(content=text)

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        await self.trajectory.write(request.path, request.content)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        source = Path(request.source_path)
        if await asyncio.to_thread(source.is_dir):
            await self.trajectory.upload(source, request.target_path)
        else:
            data = await asyncio.to_thread(source.read_bytes)
            await self.trajectory.write(request.target_path, data)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """Ends its sessions; the trajectory is closed by who opened it."""
        sessions, self._sessions = self._sessions, {}
        for terminal in sessions.values():
            await terminal.close()
        return CloseResponse()


class TrajectoryDeployment(AbstractDeployment):
    """A deployment that opens a trajectory when it starts and closes it when it stops."""

    def __init__(self, trajectory: Callable[[], TrajectoryHandle]) -> None:
        self.logger = logging.getLogger("artangram.swerex")
        self._new = trajectory
        self._runtime: TrajectoryRuntime | None = None
        self._hooks = CombinedDeploymentHook()

    def __del__(self) -> None:
        """The base class would start an event loop here; our trajectory has an owner."""

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    @property
    def runtime(self) -> TrajectoryRuntime:
        if self._runtime is None:
            raise DeploymentNotStartedError()
        return self._runtime

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:  # noqa: ASYNC109
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        self._runtime = TrajectoryRuntime(await self._new().open())

    async def stop(self) -> None:
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await runtime.close()
            await runtime.trajectory.close()


async def _run(terminal: BashTerminal, action: BashAction) -> BashObservation:
    """An ordinary command: checked, run, and judged by its exit code."""
    wrong = await terminal.syntax_error(action.command)
    if wrong:
        problem = f"bash cannot read the command \n{action.command!r}\n{wrong}"
        told = {"bash_stdout": "", "bash_stderr": wrong}
        raise BashIncorrectSyntaxError(problem, extra_info=told)
    expect = tuple(action.expect)
    try:
        reply = await terminal.run(action.command, timeout_s=action.timeout, expect=expect)
    except TimeoutError as error:
        raise _too_late(action) from error
    code = reply.exit_code
    if action.check == "raise" and code != 0:
        problem = f"Command {action.command!r} failed with exit code {code}. "
        problem += f"Here is the output:\n{reply.text!r}"
        raise NonZeroExitCodeError(_said(action.error_msg, problem))
    return _observed(reply, None if action.check == "ignore" else code)


async def _typed(terminal: BashTerminal, action: BashAction) -> BashObservation:
    """A line for a program that asks questions, or the one that makes it leave."""
    expect = tuple(action.expect)
    try:
        reply = await terminal.send(action.command, expect=expect, timeout_s=action.timeout)
    except TimeoutError as error:
        raise _too_late(action) from error
    if action.is_interactive_quit:
        await terminal.settle(timeout_s=LEAST_STARTUP_S)
    return _observed(reply, 0)


async def _interrupted(terminal: BashTerminal, action: BashInterruptAction) -> BashObservation:
    """Ctrl-C, and what ignores it is stopped and killed as a job of the shell."""
    expect = tuple(action.expect)
    for _ in range(action.n_retry):
        try:
            reply = await terminal.key(CTRL_C, timeout_s=action.timeout, expect=expect)
        except TimeoutError:
            continue
        text = reply.text + await terminal.settle(timeout_s=LEAST_STARTUP_S)
        return BashObservation(output=text.strip(), exit_code=0, expect_string=reply.matched)
    try:
        stopped = await terminal.key(CTRL_Z, timeout_s=max(2.0, action.timeout))
        killed = await terminal.send("kill -9 %1", timeout_s=max(2.0, action.timeout))
        # The shell tells the end of a job at a later prompt: it belongs to the next command.
        told, rest = killed.text, ROUNDS_UNTIL_TOLD
        while "Killed" not in told and (rest := rest - 1):
            told += await terminal.settle(timeout_s=LEAST_STARTUP_S)
        terminal.unread(told)
    except TimeoutError as error:
        raise CommandTimeoutError("Failed to interrupt session") from error
    return _observed(stopped, 0)


def _observed(reply: TerminalReply, code: int | None) -> BashObservation:
    return BashObservation(output=reply.text, exit_code=code, expect_string=reply.matched)


def _too_late(action: BashAction) -> CommandTimeoutError:
    return CommandTimeoutError(
        f"timeout after {action.timeout} seconds while running command {action.command!r}"
    )


def _said(prefix: str, problem: str) -> str:
    return f"{prefix}: {problem}" if prefix else problem
