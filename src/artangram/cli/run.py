"""`artangram run`: one command as an action, in a sandbox, on cores it gets while it runs."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.house import Token, Url, house
from artangram.cli.output import Output
from artangram.core.errors import BadInput
from artangram.orchestrator.client import between
from artangram.orchestrator.records import ActionResult


def run(
    command: Annotated[list[str], typer.Argument(help="The command; {units} becomes its cores.")],
    cpu: Annotated[str, typer.Option(help="Cores, or a range as in 1-8.")] = "1",
    timeout: Annotated[float | None, typer.Option(help="Limit on its run, in seconds.")] = None,
    memory_mb: Annotated[int, typer.Option(help="Of the sandbox.", min=1)] = 512,
    file: Annotated[
        list[Path] | None, typer.Option(help="Copy this file into the sandbox. Repeat it.")
    ] = None,
    url: Url = None,
    token: Token = None,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Run a command in a sandbox and end with its exit code. Put -- before the command."""
    output = Output(json)
    result = asyncio.run(_run(command, cpu, timeout, memory_mb, file or [], url, token))
    if json is None:
        sys.stdout.write(result.stdout)
        sys.stderr.write(result.stderr)
    if result.exit_code is None:
        print(f"{result.outcome}: {result.reason}", file=sys.stderr)
    output.json(result)
    raise typer.Exit(1 if result.exit_code is None else result.exit_code % 256)


async def _run(
    command: list[str],
    cpu: str,
    timeout_s: float | None,
    memory_mb: int,
    files: list[Path],
    url: str | None,
    token: str | None,
) -> ActionResult:
    contents = [(path.name, _content(path)) for path in files]
    async with (
        house(url, token) as one,
        one.trajectory(job="run", memory_mb=memory_mb) as trajectory,
    ):
        for name, content in contents:
            await trajectory.write(name, content)
        return await trajectory.run(command, cpu=_cores(cpu), timeout_s=timeout_s)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = error.strerror or str(error)
        raise BadInput(str(path), problem, "name a file you may read") from None


def _cores(text: str) -> int | dict[str, object]:
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise BadInput("cpu", f"{text!r} is not a number of cores", "write 2 or 1-8")
    return between(int(least), int(most)) if dash else int(least)
