"""What does a decision cost, and how does that compare with task systems on the same machine?"""

from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram_bench.cost import BurstCost, CycleCost, burst_cost, cycle_cost
from artangram_bench.live import dask_us, ours_us, ray_us
from artangram_bench.looptimes import LoopTimes, loop_times
from artangram_bench.result import Origin


class SchedulerCost(Struct, frozen=True, kw_only=True):
    cycles: list[CycleCost]
    bursts: list[BurstCost]
    ours_us: list[float]
    """No-op actions with two worker processes, wall time, one figure a round."""
    ray_us: list[float]
    dask_us: list[float]
    loop: LoopTimes | None = None
    """What holds the event loop of a large cluster."""


def scheduler(
    rounds: Annotated[int, typer.Option(help="Interleaved rounds against the peers.")] = 3,
    peers: Annotated[bool, typer.Option(help="Run Ray and Dask as well.")] = True,
    large: Annotated[
        bool, typer.Option(help="Look at 1,000 nodes with 100k trajectories, and snapshot them.")
    ] = True,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Microseconds per action at 1k, 10k and 100k waiting, beside Ray and Dask no-op tasks.

    And how long a look at a large cluster, and a snapshot of its journal, hold the event loop.
    """
    output, origin = Printer(json), Origin()
    mixes = (("elastic", 0.08), ("elastic", 1.0), ("fcfs", 0.08))
    cost = SchedulerCost(
        cycles=[cycle_cost(name, elastic_share=share) for name, share in mixes],
        bursts=[burst_cost(name, elastic_share=share) for name, share in mixes],
        ours_us=[],
        ray_us=[],
        dask_us=[],
        loop=loop_times() if large else None,
    )
    for _ in range(rounds):
        cost.ours_us.append(ours_us(100_000))
        if peers:
            cost.ray_us.append(ray_us(3_000))
            cost.dask_us.append(dask_us(2_000))
    _print(cost, output)
    output.json(origin.result("What does a decision cost?", cost))


def _print(cost: SchedulerCost, output: Printer) -> None:
    output.table(
        "CPU microseconds per action (submit, decide, finish, report), 16 nodes x 64 cores",
        ["policy", "elastic", "1k waiting", "10k", "100k", "growth"],
        [
            [c.policy, f"{c.elastic_share:.0%}"]
            + [f"{us:.1f}" for us in c.us_by_waiting.values()]
            + [f"{c.us_by_waiting[100_000] / c.us_by_waiting[1_000]:.2f}x"]
            for c in cost.cycles
        ],
    )
    output.table(
        "CPU milliseconds for a burst of 2,048 actions onto 1,024 idle cores",
        ["policy", "elastic", "decide", "take in and decide"],
        [
            [b.policy, f"{b.elastic_share:.0%}", f"{b.decide_ms:.1f}", f"{b.whole_ms:.1f}"]
            for b in cost.bursts
        ],
    )
    if cost.loop is not None:
        loop = cost.loop
        what = f"{loop.nodes} nodes, {loop.trajectories} trajectories, {loop.actions} actions"
        output.table(
            f"Milliseconds on the event loop with {what}",
            ["status()", "longest hold during a snapshot", "snapshot in all s", "its size MB"],
            [
                [
                    f"{loop.status_ms:.1f}",
                    f"{loop.snapshot_hold_ms:.1f}",
                    f"{loop.snapshot_s:.1f}",
                    f"{loop.snapshot_mb:.0f}",
                ]
            ],
        )
    if not cost.ours_us:
        return
    ours = min(cost.ours_us)
    output.table(
        "No-op actions through two worker processes: wall microseconds each, best round",
        ["system", "us", "ratio to ours"],
        [
            [name, f"{min(times):.1f}", f"{min(times) / ours:.1f}x"]
            for name, times in (
                ("artangram", cost.ours_us),
                ("Ray task", cost.ray_us),
                ("Dask task", cost.dask_us),
            )
            if times
        ],
    )
