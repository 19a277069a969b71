"""`artangram run`: one command as an action, in a sandbox, on cores it gets while it runs."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.client import Token, Url, answering, client
from artangram.cli.output import JsonFile, Printer
from artangram.cli.standard import harmless
from artangram.core.errors import BadInput
from artangram.managers.cpu import LONGEST_RUN_S
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.httppolicy import MOST_OUTPUT_BYTES
from artangram.orchestrator.options import Amount, between
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.protocol import Command, Limits
from artangram.sandbox.protocol import Output as Piece


class RunReport(Struct, frozen=True, kw_only=True):
    """What `--json` writes: how the command ended, what it printed, and where its time went."""

    action: str
    outcome: str
    reason: str
    exit_code: int | None
    start_error: str
    """Why the program never started; empty if it did."""
    stdout: str
    stderr: str
    wait_s: float
    overhead_s: float
    run_s: float
    core_s: float
    truncated_bytes: int
    """Printed beyond what is kept of a command's output."""


def run(
    command: Annotated[
        list[str], typer.Argument(help="The command; {units} in it becomes its number of cores.")
    ],
    cpu: Annotated[str, typer.Option(help="Cores: a number, or a range such as 1-8.")] = "1",
    timeout: Annotated[
        float | None, typer.Option(help="Kill the command after this many seconds.", min=0)
    ] = None,
    memory_mb: Annotated[int, typer.Option(help="Memory of the sandbox, in MB.")] = 512,
    file: Annotated[
        list[Path] | None, typer.Option(help="Copy this file into the sandbox; may be repeated.")
    ] = None,
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
) -> None:
    """Run a command in a sandbox and exit with its exit code. Put -- before the command.

    Output appears as the command prints it; its standard input is empty. The exit code is 137 when
    the command exceeds --timeout, and 1 when the cluster refuses the command or fails under it.
    """
    output = Printer(json)
    # What no sandbox could do is said before one is made.
    Limits(memory_mb=memory_mb, disk_mb=1)
    Command(argv=tuple(command), timeout_s=LONGEST_RUN_S if timeout is None else timeout)
    result = asyncio.run(
        _run(
            client(url, token),
            command,
            url=url,
            cpu=_cores(cpu),
            timeout_s=timeout,
            memory_mb=memory_mb,
            files=_contents(file or []),
            is_shown=json is None,
        )
    )
    if not (result.ok or result.reason.startswith("exit code")):
        print(f"{result.outcome}: {harmless(result.reason)}", file=sys.stderr)
    if _num_truncated(result):
        problem = f"{_num_truncated(result)} bytes of its output were dropped"
        print(f"truncated: {problem}; write long output to a file", file=sys.stderr)
    output.json(_ran(result))
    raise typer.Exit(1 if result.exit_code is None else result.exit_code % 256)


def _ran(result: ActionResult) -> RunReport:
    return RunReport(
        action=result.action_id,
        outcome=result.outcome,
        reason=result.reason,
        exit_code=result.exit_code,
        start_error=result.start_error,
        stdout=result.stdout,
        stderr=result.stderr,
        wait_s=result.wait_s,
        overhead_s=result.overhead_s,
        run_s=result.run_s,
        core_s=result.core_s,
        truncated_bytes=_num_truncated(result),
    )


async def _run(
    opening: AbstractAsyncContextManager[Client],
    command: list[str],
    *,
    url: str | None,
    cpu: Amount,
    timeout_s: float | None,
    memory_mb: int,
    files: dict[str, bytes],
    is_shown: bool,
) -> ActionResult:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(opening)
        if url is not None:
            async with answering(url):  # What comes then may take as long as it takes.
                await one.status()
        trajectory = one.trajectory(job="run", memory_mb=memory_mb)
        await stack.enter_async_context(trajectory)
        for name, content in files.items():
            await _copy(trajectory, name, content)
        printed = trajectory.stream(
            command, cpu=cpu, timeout_s=timeout_s, output_bytes=MOST_OUTPUT_BYTES
        )
        async with aclosing(printed) as pieces:
            async for piece in pieces:
                if isinstance(piece, ActionResult):
                    return piece
                if is_shown:
                    _show(piece)
    raise AssertionError("a stream ends with a result")


def _show(piece: Piece) -> None:
    channel = sys.stdout if piece.channel == "stdout" else sys.stderr
    channel.buffer.write(piece.data)
    channel.buffer.flush()


def _num_truncated(result: ActionResult) -> int:
    return 0 if result.command is None else result.command.truncated_bytes


async def _copy(trajectory: TrajectoryHandle, name: str, content: bytes) -> None:
    try:
        await trajectory.write(name, content)
    except OSError as error:
        problem = f"{error.strerror or error}, in the sandbox"
        raise BadInput(name, problem, "give the sandbox more with --memory-mb") from None


def _contents(paths: Sequence[Path]) -> dict[str, bytes]:
    """By the name that each will have in the sandbox."""
    found: dict[str, bytes] = {}
    for path in paths:
        if path.name in found:
            raise BadInput("file", f"two are named {path.name}", "rename one: both go to /work")
        found[path.name] = _content(path)
    return found


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = error.strerror or str(error)
        raise BadInput(str(path), problem, "name a file you may read") from None


def _cores(text: str) -> Amount:
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise BadInput("cpu", f"{text!r} is not a number of cores", "write 2 or 1-8")
    return between(int(least), int(most)) if dash else int(least)
