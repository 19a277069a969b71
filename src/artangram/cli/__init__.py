"""The command line: one file per verb."""

import sys
from typing import Annotated

import typer

from artangram import __version__
from artangram.cli.ask import explain, status
from artangram.cli.bench import bench
from artangram.cli.demo import demo
from artangram.cli.doctor import doctor
from artangram.cli.run import run
from artangram.cli.simulate import simulate
from artangram.cli.trace import trace
from artangram.cli.train import train
from artangram.cli.up import up
from artangram.core.errors import BadInput

app = typer.Typer(
    name="artangram",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for verb in (demo, train, up, run, status, explain, simulate, doctor):
    app.command()(verb)
app.add_typer(trace, name="trace")
app.add_typer(bench, name="bench")


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(f"artangram {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Action-level orchestration and disaggregated rollout for agentic RL."""


def main() -> None:
    """Run a verb. Bad input is one line and exit code 2, never a traceback."""
    try:
        app()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)
