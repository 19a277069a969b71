"""`artangram up`: the orchestrator of this machine as a service."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.house import plainly_refused
from artangram.cli.output import Output
from artangram.config.house import HouseSpec, read_house
from artangram.core.policies.catalog import policy as policy_named
from artangram.orchestrator.up import kept_token
from artangram.orchestrator.up import up as serve

STATE_DIR = Path.home() / ".artangram"


def up(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 7410,
    state_dir: Annotated[
        Path, typer.Option(help="The journal and the agent's files: what a restart goes on from.")
    ] = STATE_DIR,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML: functions, devices with their services, APIs with their quotas."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="As for `simulate`.")] = None,
    cores: Annotated[int | None, typer.Option(help="Use only so many of this machine.")] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="ARTANGRAM_TOKEN", help="Callers must send it; made up if not given."),
    ] = None,
) -> None:
    """Serve this machine until SIGTERM or Ctrl-C, then drain.

    Cores are always served; `--config` offers functions, model services and APIs beside them.
    Nothing accepted is lost by a crash: start it again with the same state directory. The token is
    kept there too, in the file `token`.
    """
    house = HouseSpec() if config is None else read_house(config)
    chosen = policy or house.policy
    policy_named(chosen)
    secret = token or kept_token(state_dir)
    console = Output(None).console

    def on_ready(url: str) -> None:
        console.print(f"Serving {url} with policy {chosen}; state in {state_dir}", soft_wrap=True)
        console.print(f"export ARTANGRAM_URL={url}", soft_wrap=True)
        if token is None:
            console.print(f"export ARTANGRAM_TOKEN={secret}", soft_wrap=True)
        console.file.flush()  # Whoever started us in the background reads this from a file.

    serving = serve(
        state_dir,
        on_ready=on_ready,
        host=host,
        port=port,
        token=secret,
        policy=chosen,
        cores=cores or house.cores,
        memory_mb=house.memory_mb,
        offers=house.offers,
        images=[Path(folder) for folder in house.images],
    )
    with plainly_refused(None):
        asyncio.run(serving)
    console.print("Drained.")
