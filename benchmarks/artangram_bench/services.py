"""Many model services on few devices, live: what does evicting on execution cost and save?

- Every service is all-MiniLM-L6-v2 with weights of its own: the packaged ones and a little noise,
  as a family of fine-tunes would be. A device holds one of them.
- Calls come in bursts, one service each, as when a batch of trajectories reaches its judge; the
  same calls at the same times for every policy.
- `static` has a device for every service and never loads during the run. Ours has `--devices`.
  Both clusters are open all the time and take turns, round by round, each first as often as the
  other: what else the machine does meets both. The ratio has a confidence interval over rounds.
  Before them is a rehearsal, in which the memory of the processes is looked at.
- `load-per-call` has as many devices as ours and starts every call from scratch: a new interpreter
  that imports torch and reads the weights from storage, which the page cache makes fast.
- Devices have one thread each and share this machine's cores; so a policy with more devices has
  more memory, not more compute.
"""

import asyncio
import os
import random
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.scheduling.action import ActionRecord
from artangram.services.service import Service, weights_mb
from artangram.services.shipped.similarity import packaged
from artangram_bench.result import Origin
from artangram_bench.services_plan import Arrival, a_judge, a_plan, one_queue_s
from artangram_bench.services_side import COLD, MEMORY_MB, OURS, STATIC, Row, call_s, opened

ACT_AT_MOST, SHARE_AT_MOST = 1.0, 0.3
BETTER_AT_LEAST, FASTER_AT_LEAST, OVERHEAD_AT_MOST = 20.0, 10.0, 0.1

_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Two-sided 95 % quantiles of Student's t, from one degree of freedom on."""


class Spread(Struct, frozen=True, kw_only=True):
    """A ratio that was measured in pairs."""

    ratio: float
    """Geometric mean of the rounds."""
    low: float | None
    """The 95 % confidence interval over rounds; unknown with one."""
    high: float | None
    rounds: list[float]


class ServiceFigures(Struct, frozen=True, kw_only=True):
    services: int
    weights_mb: int
    device_mb: int
    cores: int
    call_s: float
    """One call alone, its service resident."""
    rows: list[Row]
    act_to_static: float
    """Mean ACT of ours over that of static, over all calls."""
    act_spread: Spread
    """The same, round by round."""
    act_one_s: float
    """Of one queue before all cores, a call at a time: batches may do better."""
    device_share: float
    better_than_cold: float | None
    restore_faster: float | None
    """Cold load over restore."""
    overhead_share: float
    """Of ours: restore and dispatch over run."""


def services(
    count: Annotated[int, typer.Option(help="Number of services.", min=2)] = 10,
    devices: Annotated[
        int, typer.Option(help="Devices for ours; each holds one service.", min=1)
    ] = 3,
    rounds: Annotated[
        int, typer.Option(help="Rounds of static and ours, alternating.", min=1)
    ] = 24,
    bursts: Annotated[int, typer.Option(help="Bursts of calls per round.", min=1)] = 8,
    cold_bursts: Annotated[
        int, typer.Option(help="Calls of the first round for load-per-call; 0 skips it.", min=0)
    ] = 6,
    seed: Annotated[int, typer.Option(help="Same seed, same calls.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Ten judges on devices that hold three: ACT, restores and overhead, policy by policy."""
    output, origin = Printer(json), Origin()
    packaged()  # Raises now if it is missing, not after minutes.
    with output.progress() as progress, TemporaryDirectory(prefix="artangram-judges-") as folder:
        task = progress.add_task("making judges")
        judges = [a_judge(Path(folder), number) for number in range(count)]
        alone_s = asyncio.run(call_s(judges[0]))
        plans = [
            a_plan(random.Random(f"{seed} {number}"), judges, bursts, call_s=alone_s)
            for number in range(rounds + 1)
        ]
        progress.update(task, description=f"{STATIC} and {OURS}")
        rows, spread = asyncio.run(
            _compared(judges, plans[1:], rehearsal=plans[0], devices=devices)
        )
        if cold_bursts:
            progress.update(task, description=COLD)
            first = a_plan(random.Random(f"{seed} 0"), judges, cold_bursts, call_s=alone_s)
            rows.append(asyncio.run(_cold(judges, first, devices=devices)))
        one_s = one_queue_s(plans[1:], call_s=alone_s)
        figures = _figures(rows, spread, judges, call_s=alone_s, one_s=one_s)
    _print(output, figures)
    output.json(origin.result("What does evicting services on execution cost and save?", figures))


async def _compared(
    judges: list[Service], plans: list[list[Arrival]], *, rehearsal: list[Arrival], devices: int
) -> tuple[list[Row], Spread]:
    """Static and ours in turn, each first in every other round."""
    async with (
        opened(STATIC, len(judges), judges) as static,
        opened(OURS, devices, judges) as ours,
    ):
        for side in (static, ours):
            await side.warm(judges)
            await side.rehearse(rehearsal)
        for number, plan in enumerate(plans):
            for side in (static, ours) if number % 2 == 0 else (ours, static):
                await side.run(plan)
        pairs = zip(ours.rounds, static.rounds, strict=True)
        ratios = [_mean_act(one) / _mean_act(other) for one, other in pairs]
        return [static.row(), ours.row()], spread_of(ratios)


async def _cold(judges: list[Service], plan: list[Arrival], *, devices: int) -> Row:
    """`load-per-call`; only what the plan calls is deployed, since that takes long here."""
    called = {call.service for call in plan}
    async with opened(COLD, devices, [judge for judge in judges if judge.id in called]) as side:
        await side.run(plan)
        return side.row()


def _mean_act(records: list[ActionRecord]) -> float:
    return mean(record.act_s for record in records)


def spread_of(ratios: list[float]) -> Spread:
    """The geometric mean of `ratios` and how sure it is."""
    logs = [log(ratio) for ratio in ratios]
    middle, low, high = mean(logs), None, None
    if len(logs) > 1:
        quantile = _T95[min(len(logs) - 1, len(_T95)) - 1]
        half = quantile * stdev(logs) / sqrt(len(logs))
        low, high = exp(middle - half), exp(middle + half)
    return Spread(ratio=exp(middle), low=low, high=high, rounds=ratios)


def _figures(
    rows: list[Row], spread: Spread, judges: list[Service], *, call_s: float, one_s: float
) -> ServiceFigures:
    static, ours, *cold = rows
    return ServiceFigures(
        services=len(judges),
        weights_mb=weights_mb(judges[0].weights),
        device_mb=MEMORY_MB,
        cores=len(os.sched_getaffinity(0)),
        call_s=call_s,
        rows=rows,
        act_to_static=ours.act_mean_s / static.act_mean_s,
        act_spread=spread,
        act_one_s=one_s,
        device_share=ours.devices / static.devices,
        better_than_cold=cold[0].act_mean_s / ours.act_mean_s if cold else None,
        restore_faster=cold[0].restore_s / ours.restore_s if cold else None,
        overhead_share=ours.overhead_mean_s / ours.run_mean_s,
    )


def _print(output: Printer, figures: ServiceFigures) -> None:
    columns = "policy on ACT p99 wait line over run came MB bad"
    output.table(
        f"{figures.services} services of {figures.weights_mb} MB, devices of {figures.device_mb} "
        f"MB on {figures.cores} cores; seconds, and how many restores came",
        columns.split(),
        [_cells(row) for row in figures.rows],
    )
    say, spread = output.console.print, figures.act_spread
    sure = "" if spread.low is None else f", 95 % between {spread.low:.2f} and {spread.high:.2f}"
    say(
        f"Mean ACT {figures.act_to_static:.2f}x that of {STATIC}{sure} (goal at most "
        f"{ACT_AT_MOST:g}) with {figures.device_share:.0%} of its devices (goal "
        f"{SHARE_AT_MOST:.0%}); overhead {figures.overhead_share:.1%} of execution (goal "
        f"{OVERHEAD_AT_MOST:.0%}). One queue before the cores, a call at a time: "
        f"{figures.act_one_s:.3f} s."
    )
    if figures.better_than_cold is not None and figures.restore_faster is not None:
        say(
            f"{figures.better_than_cold:.0f}x better than {COLD} (goal {BETTER_AT_LEAST:g}x); a "
            f"restore is {figures.restore_faster:.0f}x faster than a cold load (goal "
            f"{FASTER_AT_LEAST:g}x)."
        )


def _cells(row: Row) -> list[str]:
    return [
        row.policy,
        str(row.devices),
        f"{row.act_mean_s:.3f}",
        f"{row.act_p99_s:.2f}",
        f"{row.wait_mean_s:.3f}",
        f"{row.line_mean_s:.3f}",
        f"{row.overhead_mean_s:.3f}",
        f"{row.run_mean_s:.3f}",
        str(row.restores),
        "" if row.most_device_mb is None else f"{row.most_device_mb:.0f}",
        str(row.failed),
    ]
