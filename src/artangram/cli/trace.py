"""`artangram trace`: make traces, of a family or of what ran."""

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Struct, structs

from artangram.cli.output import JsonFile, Printer, keep_apart, make_folder, writing
from artangram.config.clusterfile import write_cluster
from artangram.core.errors import BadInput
from artangram.observe.journal import Entry, JournalError
from artangram.observe.journaltrace import deployed_in, trace_of
from artangram.observe.perfetto import trace_events
from artangram.observe.recording import owner_of, recorded, recorded_after
from artangram.observe.spans import SpanMaker
from artangram.observe.trace import TraceSource, TraceTrajectory, write_trace
from artangram.orchestrator.recovery import Setup
from artangram.sim.families import FAMILIES, cluster_for, stream

trace = typer.Typer(
    help="Make traces for the simulator: synthetic ones, or of what ran.", no_args_is_help=True
)


@trace.callback()
def _group() -> None:
    """Make traces for the simulator: synthetic ones, or of what ran."""


@trace.command()
def generate(
    out: Annotated[Path, typer.Argument(help="The trace to write (.jsonl or .jsonl.gz).")],
    family: Annotated[str, typer.Option(help=f"One of: {', '.join(FAMILIES)}.")] = "coding",
    preset: Annotated[
        str, typer.Option(help="Named settings of the family; `trace families` lists them.")
    ] = "default",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same trace.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a parameter, as in --set batch=64; may be repeated."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Also write a cluster that fits the family (YAML).")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="Change the cluster, as in --size cores=256; may be repeated."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Make a synthetic trace of a family, and a cluster for it.

    `artangram trace families` lists presets, parameters and sizes.
    """
    output = Printer(json)
    params, sizes = _pairs("--set", set_), _pairs("--size", size)
    if sizes and cluster is None:
        raise BadInput(
            "--size", "changes a cluster, and --cluster is missing", "add --cluster FILE"
        )
    keep_apart({"the trace": out, "--cluster": cluster, "--json": json})
    made = stream(family, seed=seed, preset=preset, **params)
    if cluster is not None:
        make_folder(cluster)
        write_cluster(cluster, cluster_for(family, **sizes))
    _write(out, made, what=f"of the {family} family", output=output)


@trace.command()
def perfetto(
    state_dir: Annotated[
        Path, typer.Argument(help="State directory of `artangram up` or `artangram.local`.")
    ],
    out: Annotated[Path, typer.Argument(help="The file to write (.json or .json.gz).")],
) -> None:
    """Write which action held which core when, as a file that ui.perfetto.dev opens."""
    make_folder(out)
    opened = gzip.open if out.suffix == ".gz" else open
    count = 0
    with _readable(state_dir), writing(out), opened(out, "wb") as file:
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        for count, event in enumerate(trace_events(recorded(state_dir)), start=1):
            file.write(b",\n" * (count > 1) + msgspec.json.encode(event))
        file.write(b"]}\n")
    told = f"{out}: {count} events; open it at ui.perfetto.dev"
    Printer(None).console.print(told, soft_wrap=True)


@trace.command()
def otlp(
    state_dir: Annotated[
        Path, typer.Argument(help="State directory of `artangram up` or `artangram.local`.")
    ],
    endpoint: Annotated[
        str, typer.Option(help="Where the collector of OpenTelemetry takes traces over HTTP.")
    ] = "http://127.0.0.1:4318/v1/traces",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on sending what ends, until Ctrl-C.")
    ] = False,
    every_s: Annotated[float, typer.Option(help="How often to look for more.", min=0.1)] = 2.0,
) -> None:
    """Send what ran to a collector of OpenTelemetry: a trace per trajectory, a span per action."""
    from artangram.observe.otlp import over_http, send  # Needs an extra.

    console, exporter = Printer(None).console, over_http(endpoint)
    maker, after = SpanMaker(), 0
    while True:
        seen: list[int] = []
        spans = maker.spans(_noting(recorded_after(state_dir, after), seen))
        with _readable(state_dir):
            count = send(spans, exporter, service="artangram")
        after = seen[-1] if seen else after
        if count or not follow:
            console.print(f"{count} spans sent to {endpoint}", soft_wrap=True)
        if not follow:
            return
        time.sleep(every_s)


def _noting(entries: Iterator[tuple[int, Entry]], seen: list[int]) -> Iterator[Entry]:
    """The entries, while the number of the latest is noted in `seen`."""
    for number, entry in entries:
        seen[:] = [number]
        yield entry


@contextmanager
def _readable(state_dir: Path) -> Iterator[None]:
    """Says in one line what is wrong with a journal."""
    try:
        yield
    except JournalError as error:
        problem = str(error).partition(";")[0]  # Some say how to mend it, too.
        raise BadInput(str(state_dir), problem, "restore it from a copy") from None


@trace.command()
def record(
    state_dir: Annotated[
        Path, typer.Argument(help="State directory of `artangram up` or `artangram.local`.")
    ],
    out: Annotated[Path, typer.Argument(help="The trace to write (.jsonl or .jsonl.gz).")],
    name: Annotated[str, typer.Option(help="Name of the trace.")] = "recorded",
    cluster: Annotated[
        Path | None, typer.Option(help="Also write the cluster it ran on (YAML).")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Make a trace of what a service or a cluster did, to replay in the simulator.

    It may still be running; actions that have not ended are left out.
    """
    output = Printer(json)
    keep_apart({"the trace": out, "--cluster": cluster, "--json": json})
    try:
        made = trace_of(recorded(state_dir), name=name)
        setup = msgspec.json.decode(owner_of(state_dir), type=Setup)
        later = deployed_in(recorded(state_dir))
    except (JournalError, msgspec.MsgspecError) as error:
        problem = str(error).partition(";")[0]  # Some say how to mend it, too.
        raise BadInput(str(state_dir), problem, "restore it from a copy") from None
    if cluster is not None:
        make_folder(cluster)
        services = setup.cluster.services | later
        write_cluster(cluster, structs.replace(setup.cluster, services=services))
    _write(out, made, what=f"that ran with policy {setup.policy}", output=output)


@trace.command()
def families(
    json: JsonFile = None,
) -> None:
    """List the families of synthetic traces, their presets, parameters and cluster sizes."""
    output = Printer(json)
    for name, family in FAMILIES.items():
        title = f"{name} (presets: {', '.join(family.presets)})"
        output.table(title, ["--set", "default"], _defaults(family.presets["default"]))
        output.table(f"cluster of {name}", ["--size", "default"], _defaults(family.sizes))
    output.json({name: family.presets for name, family in FAMILIES.items()})


def _defaults(record: Struct) -> list[list[str]]:
    return [[field, str(getattr(record, field))] for field in record.__struct_fields__]


class Written(Struct, frozen=True, kw_only=True):
    """What `--json` writes of a trace that was made."""

    trace: str
    trajectories: int
    actions: int


class _Counted:
    """A trace that tells how far it was read."""

    def __init__(self, source: TraceSource, on_count: Callable[[str], None]) -> None:
        self.name = source.name
        self.train_s = source.train_s
        self.num_trajectories = self.num_actions = 0
        self._source = source
        self._on_count = on_count

    @property
    def trajectories(self) -> Iterator[TraceTrajectory]:
        for one in self._source.trajectories:
            self.num_trajectories += 1
            self.num_actions += sum(len(turn.actions) for turn in one.turns)
            self._on_count(str(self))
            yield one

    def __str__(self) -> str:
        return f"{self.num_trajectories} trajectories, {self.num_actions} actions"


def _write(out: Path, made: TraceSource, *, what: str, output: Printer) -> None:
    """Write a trace, and say how large it is."""
    make_folder(out)
    with output.progress() as progress, writing(out):
        if out.exists() and not out.is_file():
            # A trace takes the place of what is there, and that may be a device.
            raise BadInput(str(out), "is not a file", "name a file you may write")
        task = progress.add_task("")
        counted = _Counted(made, lambda text: progress.update(task, description=text))
        write_trace(out, counted)
    output.console.print(f"{out}: {counted} {what}", soft_wrap=True)
    output.json(
        Written(trace=str(out), trajectories=counted.num_trajectories, actions=counted.num_actions)
    )


def _pairs(option: str, texts: list[str] | None) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(option, f"{text!r} is not a setting", "write NAME=VALUE")
        pairs[name] = value
    return pairs
