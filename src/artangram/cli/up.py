"""`artangram up`: the orchestrator of this machine as a service."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.output import Output
from artangram.core.policies.catalog import policy as policy_named
from artangram.orchestrator.local import running
from artangram.orchestrator.server import serving, until_told_to_stop

STATE_DIR = Path.home() / ".artangram"


def up(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8420,
    state_dir: Annotated[
        Path, typer.Option(help="The journal and the agent's files: what a restart goes on from.")
    ] = STATE_DIR,
    policy: Annotated[str, typer.Option(help="As for `simulate`.")] = "elastic",
    cores: Annotated[int | None, typer.Option(help="Use only so many of this machine.")] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="ARTANGRAM_TOKEN", help="Callers must send it; made up if not given."),
    ] = None,
) -> None:
    """Serve this machine's cores until SIGTERM or Ctrl-C, then drain.

    Nothing accepted is lost by a crash: start it again with the same state directory.
    """
    policy_named(policy)
    secret = token or secrets.token_urlsafe(24)
    asyncio.run(_up(host, port, state_dir, policy, cores, secret, is_new=token is None))


async def _up(
    host: str,
    port: int,
    state_dir: Path,
    policy: str,
    cores: int | None,
    token: str,
    *,
    is_new: bool,
) -> None:
    console = Output(None).console
    async with (
        running(policy=policy, cores=cores, state_dir=state_dir) as orchestrator,
        serving(orchestrator, host=host, port=port, token=token) as url,
    ):
        console.print(f"Serving {url} with policy {policy}; state in {state_dir}", soft_wrap=True)
        if is_new:
            console.print(f"export ARTANGRAM_URL={url} ARTANGRAM_TOKEN={token}", soft_wrap=True)
        await until_told_to_stop(orchestrator)
        console.print("Drained.")
