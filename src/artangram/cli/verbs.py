"""The verbs of the command line, each in a file of its own.

Only the verb that is wanted is imported: `doctor` answers where nothing else is installed, and
no verb pays for the imports of another. `summaries` has what `artangram --help` shows.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from rich.markup import escape

from artangram import __version__
from artangram.cli.extras import lacking, what_to_install
from artangram.cli.summaries import SUMMARIES
from artangram.core.errors import BadInput

VERBS = {
    "demo": "demo",
    "train": "train",
    "eval": "evaluate",
    "warmup": "warmup",
    "up": "up",
    "agent": "agent",
    "run": "run",
    "status": "status",
    "top": "status",
    "use": "use",
    "explain": "ask",
    "history": "ask",
    "cancel": "ask",
    "close": "ask",
    "drain": "ask",
    "snapshots": "snapshots",
    "apply": "apply",
    "simulate": "simulate",
    "plan": "plan",
    "report": "report",
    "doctor": "doctor",
    "trace": "trace",
    "bench": "bench",
}
"""Each verb, and the module it is in."""

EXAMPLES = {
    "demo": ("artangram demo --steps 40 --tasks calc,search",),
    "train": (
        "artangram train run.yaml --print-plan",
        "artangram train run.yaml --resume",
        "artangram train run.yaml --url $ARTANGRAM_URL",
    ),
    "eval": ("artangram eval run.yaml --problems 100 --temperature 0",),
    "warmup": ("artangram warmup models/base out/first/transcripts.jsonl.gz --out models/warm",),
    "up": (
        "artangram up cluster.yaml --state-dir state",
        "artangram up --local 3",
        "artangram up --model models/warm",
    ),
    "agent": ("artangram agent --join head:7411 --fingerprint sha256:... --token-file join-token",),
    "run": (
        "artangram run -- echo hello",
        "artangram run --cpu 1-8 --file test_it.py -- pytest -q -n {units} test_it.py",
    ),
    "status": ("artangram status --url http://127.0.0.1:7410 --json - | jq .queued",),
    "use": ("artangram use --price cpu=0.04 --price gpu=2.5 --csv use.csv",),
    "explain": ("artangram explain 3f2a-17 --url http://127.0.0.1:7410",),
    "top": ("artangram top --every 1",),
    "history": ("artangram history 3f2a-17",),
    "cancel": ("artangram cancel 3f2a-17",),
    "close": ("artangram close my-run",),
    "drain": ("artangram drain node-3", "artangram drain node-3 --undo"),
    "snapshots": ("artangram snapshots", "artangram snapshots --forget deps"),
    "apply": ("artangram apply cluster.yaml",),
    "simulate": (
        "artangram simulate --cluster cluster.yaml --trace day.jsonl.gz "
        "--policy elastic --policy pods:1 --plot day.svg",
    ),
    "plan": (
        "artangram plan sizes --trace day.jsonl.gz --cluster cluster.yaml "
        "--sweep cpu.cores=32..512 --slo 'step<600' --price cpu=0.04 "
        "--policy elastic --policy pods:1 --plot plan.svg",
    ),
    "plan sizes": (
        "artangram plan sizes --trace day.jsonl.gz --cluster cluster.yaml "
        "--sweep cpu.cores=32..512 --slo 'step<600' --price cpu=0.04 "
        "--policy elastic --policy pods:1 --plot plan.svg",
    ),
    "plan affinity": (
        "artangram plan affinity out --devices H800=64,H20=24 --price H20=1.2 --plot pays.svg",
    ),
    "report": ("artangram report out/my-run --out report.html", "artangram report a.json b.json"),
    "doctor": ("artangram doctor --json -", "artangram doctor --cluster --url $ARTANGRAM_URL"),
    "trace": (
        "artangram trace families",
        "artangram trace generate day.jsonl.gz --family coding --cluster cluster.yaml",
    ),
    "trace generate": (
        "artangram trace generate day.jsonl.gz --family coding --set batch=64 "
        "--cluster cluster.yaml --size cores=128",
    ),
    "trace perfetto": ("artangram trace perfetto state run.json.gz",),
    "trace otlp": (
        "artangram trace otlp state --endpoint http://127.0.0.1:4318/v1/traces --follow",
    ),
    "trace record": ("artangram trace record state day.jsonl.gz --cluster ran.yaml",),
    "bench": ("artangram bench lab --json lab.json",),
}
"""Examples that end the `--help` of a verb; a verb without one is shown with `--json`."""

WITHOUT_VERBS = ("--version", "--install-completion", "--show-completion")


_Misused: type[Exception] = typer.BadParameter.__mro__[1]
"""A usage error; typer does not export the class."""


def perform(words: Sequence[str]) -> int:
    """Run the verb; returns the exit code. Raises `BadInput` for a usage error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that the terminal cannot show must not end the program.
            stream.reconfigure(errors="backslashreplace")
    try:
        first = next(iter(words), None)
        verbs = app(first) if first in VERBS or first in WITHOUT_VERBS else listed()
        return verbs(list(words), prog_name="artangram", standalone_mode=False) or 0
    except _Misused as misused:
        error: Any = misused
        path = "artangram" if error.ctx is None else error.ctx.command_path
        said = error.format_message().rstrip(".")
        if not said:  # No verb was given, and typer has printed the help.
            return 2
        fix = f"see `{path} --help`"
        if path == "artangram run" and said.startswith("No such option"):
            # The option most likely belongs to the command.
            fix = f"put -- before the command, or {fix}"
        raise BadInput(path, said, fix) from None


def app(first: str | None = None) -> typer.Typer:
    """The command line with the verb that `first` names, or with all verbs."""
    made = typer.Typer(name="artangram", no_args_is_help=True, pretty_exceptions_enable=False)
    made.callback()(_options)
    if first in VERBS:
        _add(made, first, needs_all=True)
    elif first not in WITHOUT_VERBS:
        for name in VERBS:
            _add(made, name, needs_all=False)
    return made


def listed() -> typer.Typer:
    """The command line as its `--help` shows it: no verb is imported, so none can be run."""
    made = typer.Typer(name="artangram", no_args_is_help=True, pretty_exceptions_enable=False)
    made.callback()(_options)
    for name in VERBS:
        what = lacking(name)
        made.command(name)(_named(name, SUMMARIES[name]) if what is None else _absent(name, what))
    return made


def _named(name: str, summary: str) -> Callable[[], None]:
    """Stands in the list for a verb."""

    def verb() -> None:
        raise AssertionError(f"{name} is only listed")

    verb.__doc__ = summary
    return verb


def _add(made: typer.Typer, name: str, *, needs_all: bool) -> None:
    try:
        verb = getattr(import_module(f"artangram.cli.{VERBS[name]}"), name)
    except ModuleNotFoundError as error:
        what = what_to_install(error.name, verb=name)
        if what is None or needs_all:
            raise
        verb = _absent(name, what)
    if isinstance(verb, typer.Typer):
        for one in verb.registered_commands:
            assert one.callback is not None, "typer registers functions"
            one.epilog = _examples(f"{name} {one.name or one.callback.__name__}")
        made.add_typer(verb, name=name, epilog=_examples(name))
    else:
        made.command(name, epilog=_examples(name))(verb)


def _examples(name: str) -> str:
    """Lines that stay lines: typer joins what no blank line divides."""
    given = EXAMPLES.get(name, (f"artangram {name} --json -",))
    return "\n\n".join(f"[dim]$[/] {escape(example)}" for example in given)


def _absent(name: str, what: str) -> Callable[[], None]:
    """Stands in the list for a verb whose packages are not installed."""

    def verb() -> None:
        raise BadInput(name, "lacks packages", what)

    verb.__doc__ = f"Not installed. {escape(what)}"
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
