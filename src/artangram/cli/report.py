"""`artangram report`: runs, journals and simulations on one page, side by side."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import JsonFile, Printer, make_folder, write_file
from artangram.cli.page import Block, Section, Tile, page
from artangram.cli.reportparts import act_section, as_text
from artangram.core.errors import BadInput
from artangram.observe.acts import acts_by_kind
from artangram.observe.journal import JournalError
from artangram.observe.recording import JOURNAL

METRICS = "metrics.jsonl"


class Reported(Struct, frozen=True, kw_only=True):
    """What `--json` writes: where the page is, and what it was made of."""

    page: str
    runs: list[str]
    journals: list[str]
    simulations: list[str]


def report(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Directories of runs (`train --out`), state directories (`up --state-dir`), and "
            "files of `simulate --json`.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    json: JsonFile = None,
) -> None:
    """Write one page about runs, journals and simulations, side by side.

    The page needs nothing else: it opens without a network, and can be sent to others. A run shows
    its curves, its time and attempts from its beginning and its end; a journal shows how long
    actions took, by kind; simulations are compared by policy.
    """
    output = Printer(json)
    runs, states, simulated = _sorted(sources)
    blocks: list[Block] = []
    tiles: list[Tile] = []
    if runs:
        from artangram.cli.reportruns import run_blocks, run_tiles

        blocks += run_blocks(runs)
        tiles += run_tiles(runs)
    blocks += _journal_blocks([*states, *_clusters_of(runs)])
    if simulated:
        from artangram.cli.reportsims import simulation_blocks

        blocks += simulation_blocks(simulated)
    names = ", ".join(source.name or str(source) for source in sources)
    make_folder(out)
    write_file(out, page("Artangram: report", f"Of {names}.", tiles, blocks).encode())
    for block in blocks:
        if isinstance(block, Section):
            output.console.print(as_text(block), soft_wrap=True, markup=False, highlight=False)
    output.console.print(f"The page: {out}", soft_wrap=True)
    output.json(
        Reported(
            page=str(out),
            runs=[str(path) for path in runs],
            journals=[str(path) for path in states],
            simulations=[str(path) for path in simulated],
        )
    )


def _sorted(sources: Sequence[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """Runs, state directories and simulations. Raises `BadInput` for anything else."""
    runs, states, simulated = list[Path](), list[Path](), list[Path]()
    for source in sources:
        if (source / METRICS).exists():
            runs.append(source)
        elif (source / JOURNAL).exists():
            states.append(source)
        elif source.is_file():
            simulated.append(source)
        else:
            problem = f"holds neither {METRICS} nor {JOURNAL}" if source.exists() else "not found"
            fix = "name OUT/RUN of `train`, a --state-dir, or a file of `simulate --json`"
            raise BadInput(str(source), problem, fix)
    return runs, states, simulated


def _clusters_of(runs: Sequence[Path]) -> Iterator[Path]:
    """The state directories of runs that had a cluster of their own."""
    for run in runs:
        for place in (run / "cluster", run.parent / "cluster"):
            if (place / JOURNAL).exists():
                yield place
                break


def _journal_blocks(states: Sequence[Path]) -> Iterator[Section]:
    for state in dict.fromkeys(states):
        try:
            kinds = acts_by_kind(state)
        except JournalError as error:
            problem = str(error).partition(";")[0]
            raise BadInput(str(state), problem, "restore it from a copy") from None
        yield act_section(kinds, of=_named(state))


def _named(state: Path) -> str:
    return state.parent.name if state.name == "cluster" and state.parent.name else state.name
