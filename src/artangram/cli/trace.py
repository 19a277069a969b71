"""`artangram trace`: make traces, and look into them."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import structs

from artangram.cli.output import Output, make_folder, writing
from artangram.config.cluster import write_cluster
from artangram.core.errors import BadInput
from artangram.observe.journal import JournalError
from artangram.observe.journaltrace import deployed_in, trace_of
from artangram.observe.recording import owner_of, recorded
from artangram.observe.trace import write_trace
from artangram.orchestrator.recovery import Setup
from artangram.sim.families import FAMILIES, cluster_for, stream

trace = typer.Typer(help="Make traces and look into them.", no_args_is_help=True)


@trace.callback()
def _group() -> None:
    """Make traces and look into them."""


@trace.command()
def generate(
    out: Annotated[Path, typer.Argument(help="The trace (.jsonl or .jsonl.gz).")],
    family: Annotated[str, typer.Option(help=f"One of: {', '.join(FAMILIES)}.")] = "coding",
    preset: Annotated[str, typer.Option(help="Named settings of the family.")] = "default",
    seed: Annotated[int, typer.Option(help="Same seed, same trace.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a parameter, as in --set batch=64. Repeat it."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Also write a cluster that fits the family (YAML).")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="Change the cluster, as in --size cores=256. Repeat it."),
    ] = None,
) -> None:
    """Make a synthetic trace of a family, and a cluster for it."""
    params, sizes = _pairs("--set", set_), _pairs("--size", size)
    made = stream(family, seed=seed, preset=preset, **params)
    if cluster is not None:
        make_folder(cluster)
        write_cluster(cluster, cluster_for(family, **sizes))
    make_folder(out)
    with writing(out):
        write_trace(out, made)
    Output(None).console.print(f"{out}: a trace of the {family} family")


@trace.command()
def record(
    state_dir: Annotated[Path, typer.Argument(help="Of `artangram up` or `artangram.local`.")],
    out: Annotated[Path, typer.Argument(help="The trace (.jsonl or .jsonl.gz).")],
    name: Annotated[str, typer.Option(help="Of the trace.")] = "recorded",
    cluster: Annotated[
        Path | None, typer.Option(help="Also write the cluster it ran on (YAML).")
    ] = None,
) -> None:
    """Make a trace of what a live run did, for the simulator to do again.

    The run may still be going on; what has not ended yet is left out.
    """
    try:
        made = trace_of(recorded(state_dir), name=name)
        setup = msgspec.json.decode(owner_of(state_dir), type=Setup)
        later = deployed_in(recorded(state_dir))
    except (JournalError, msgspec.MsgspecError) as error:
        raise BadInput(str(state_dir), str(error), "restore it from a copy") from None
    if cluster is not None:
        make_folder(cluster)
        services = setup.cluster.services | later
        write_cluster(cluster, structs.replace(setup.cluster, services=services))
    make_folder(out)
    with writing(out):
        write_trace(out, made)
    num_actions = sum(len(turn.actions) for one in made.trajectories for turn in one.turns)
    console = Output(None).console
    console.print(
        f"{out}: {len(made.trajectories)} trajectories, {num_actions} actions that ran with "
        f"policy {setup.policy}",
        soft_wrap=True,
    )


@trace.command()
def families(
    json: Annotated[str | None, typer.Option(help="Write them here; - is stdout.")] = None,
) -> None:
    """List the families with their parameters."""
    output = Output(json)
    for name, family in FAMILIES.items():
        record = family.presets["default"]
        rows = [[field, str(getattr(record, field))] for field in record.__struct_fields__]
        output.table(f"{name} (presets: {', '.join(family.presets)})", ["--set", "default"], rows)
    output.json({name: family.presets for name, family in FAMILIES.items()})


def _pairs(option: str, texts: list[str] | None) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(option, f"{text!r} is not a setting", "write NAME=VALUE")
        pairs[name] = value
    return pairs
