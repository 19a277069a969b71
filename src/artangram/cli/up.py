"""`artangram up`: the orchestrator of this machine as a service."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from artangram.aio import listening
from artangram.cli.client import plainly_refused
from artangram.cli.output import Printer, writing
from artangram.config.live import LiveSpec, blaming, read_live
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.orchestrator.tokens import checked_token, kept_token
from artangram.orchestrator.up import up as serve

STATE_DIR = Path.home() / ".artangram"


class Serves(Struct, frozen=True, kw_only=True):
    """What `--json` writes; the token is in the file `token` of the state directory."""

    url: str
    policy: str
    state_dir: str


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
    cores: Annotated[
        int | None, typer.Option(help="Use at most so many of this machine.", min=1)
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="ARTANGRAM_TOKEN", help="Callers must send it; made up if not given."),
    ] = None,
    json: Annotated[
        str | None, typer.Option(help="Write where it serves to a file, or -, once it does.")
    ] = None,
) -> None:
    """Serve this machine until SIGTERM or Ctrl-C, then drain.

    Cores are always served; `--config` options functions, model services and APIs beside them.
    Nothing accepted is lost by a crash: start it again with the same state directory. The token is
    kept there too, in the file `token`.
    """
    client = LiveSpec() if config is None else read_live(config)
    chosen = policy or client.policy
    with blaming(None if policy else config):
        policy_named(chosen)
    if port:
        listening(host, port).close()  # Said before anything is opened, which may take a while.
    with writing(state_dir, what="directory"):
        secret = checked_token(token or kept_token(state_dir))
    output = Printer(json)
    with output.progress() as opening, _refused(state_dir), blaming(config):
        opening.add_task("opening the cluster")

        def on_ready(url: str) -> None:
            opening.stop()
            made_up = None if token else secret
            _tell(output, url, policy=chosen, state_dir=state_dir, made_up=made_up)

        serving = serve(
            state_dir,
            on_ready=on_ready,
            host=host,
            port=port,
            token=secret,
            policy=chosen,
            cores=cores or client.cores,
            memory_mb=client.memory_mb,
            shares=client.shares,
            options=client.options,
            images=[Path(folder) for folder in client.images],
        )
        asyncio.run(serving)
    output.console.print("Drained.")


@contextmanager
def _refused(state_dir: Path) -> Iterator[None]:
    """Whatever keeps it from serving is said in one line."""
    with plainly_refused(), writing(state_dir, what="directory"):
        yield


def _tell(output: Printer, url: str, *, policy: str, state_dir: Path, made_up: str | None) -> None:
    """Where it serves, for people and programs; the token only if nobody else knows it."""
    console = output.console
    output.json(Serves(url=url, policy=policy, state_dir=str(state_dir.resolve())))
    console.print(f"Serving {url} with policy {policy}; state in {state_dir}", soft_wrap=True)
    console.print(f"export ARTANGRAM_URL={url}", soft_wrap=True)
    if made_up is not None:
        console.print(f"export ARTANGRAM_TOKEN={made_up}", soft_wrap=True)
    console.file.flush()  # Whoever started us in the background reads this from a file.
