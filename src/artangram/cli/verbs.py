"""The verbs of the command line, each in a file of its own.

Only the verb that is wanted is imported: `doctor` answers where nothing else is installed, and
nobody waits for the plots of another. Whoever asks what there is gets all of them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Annotated

import typer
from rich.markup import escape

from artangram import __version__
from artangram.cli.extras import how_to_get
from artangram.core.errors import BadInput

VERBS = {
    "demo": "demo",
    "train": "train",
    "up": "up",
    "run": "run",
    "status": "ask",
    "explain": "ask",
    "simulate": "simulate",
    "doctor": "doctor",
    "trace": "trace",
    "bench": "bench",
}
"""Each verb, and the module it is in."""

WITHOUT_VERBS = ("--version", "--install-completion", "--show-completion")


def app(first: str | None = None) -> typer.Typer:
    """The command line for what begins with this word: one verb, or all of them, or none."""
    made = typer.Typer(name="artangram", no_args_is_help=True, pretty_exceptions_enable=False)
    made.callback()(_options)
    if first in VERBS:
        _add(made, first, needs_all=True)
    elif first not in WITHOUT_VERBS:
        for name in VERBS:
            _add(made, name, needs_all=False)
    return made


def _add(made: typer.Typer, name: str, *, needs_all: bool) -> None:
    try:
        verb = getattr(import_module(f"artangram.cli.{VERBS[name]}"), name)
    except ModuleNotFoundError as error:
        how = how_to_get(error.name)
        if how is None or needs_all:
            raise
        verb = _absent(name, how)
    if isinstance(verb, typer.Typer):
        made.add_typer(verb, name=name)
    else:
        made.command(name)(verb)


def _absent(name: str, how: str) -> Callable[[], None]:
    """Stands in the list for a verb that cannot be imported here."""

    def verb() -> None:
        raise BadInput(name, "lacks packages", how)

    verb.__doc__ = f"Not installed: {escape(how)}"
    return verb


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(f"artangram {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Action-level orchestration and disaggregated rollout for agentic RL."""
