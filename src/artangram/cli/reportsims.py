"""Simulations on a page: their policies side by side, and each one by kind."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from artangram.cli.page import Section
from artangram.cli.reportparts import act_section
from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.observe.acts import KindAct
from artangram.sim.report import SimReport

CPU = Resource("cpu")


def simulation_blocks(files: Sequence[Path]) -> Iterator[Section]:
    """All simulations of `files`. Raises `BadInput` if one holds something else."""
    found = [one for file in files for one in _read(file)]
    slowest_s = max((one.act.mean_s for one in found), default=0.0) or 1.0
    yield Section(
        title="Simulations",
        note="Times in seconds. No schedule has a smaller mean ACT than the bound.",
        rows=[["policy", "trace", "estimates", "mean ACT", "p99", "bound", "step", "cores busy"]]
        + [[one.policy, one.trace, one.estimates, *_figures(one)] for one in found],
        bars=[[one.act.mean_s / slowest_s] for one in found],
        parts=["mean ACT"],
    )
    for one in found:
        yield act_section(list(_kinds(one)), of=f"{one.policy} on {one.trace}, simulated")


def _figures(one: SimReport) -> list[str]:
    steps = [step.duration_s for step in one.steps]
    busy = one.utilisation.get(CPU)
    return [
        f"{one.act.mean_s:.2f}",
        f"{one.act.p99_s:.2f}",
        "-" if one.lower_bound is None else f"{one.lower_bound.act_mean_s:.2f}",
        f"{sum(steps) / len(steps):.1f}" if steps else "-",
        "-" if busy is None else f"{100 * busy:.0f} %",
    ]


def _kinds(one: SimReport) -> Iterator[KindAct]:
    for kind, times in one.by_kind.items():
        yield KindAct(
            kind=kind,
            count=times.count,
            mean_s=times.mean_s,
            p99_s=times.p99_s,
            wait_s=times.wait_mean_s,
            run_s=times.run_mean_s,
        )


def _read(file: Path) -> list[SimReport]:
    try:
        data = file.read_bytes()
        if data.lstrip().startswith(b"["):
            return msgspec.json.decode(data, type=list[SimReport])
        return [msgspec.json.decode(data, type=SimReport)]
    except (OSError, msgspec.MsgspecError) as error:
        fix = "name a file that `artangram simulate --json` wrote"
        raise BadInput(str(file), f"is not the report of a simulation: {error}", fix) from None
