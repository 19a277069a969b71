"""Does hardware that fits pay? Mixed clusters against clusters of one kind that cost the same.

- The paper's batch of 512 has no unit: `affinity` has batches of 512 trajectories, `crowded` of 512
  groups of eight, for which the caches of H800 are too small.
- One kind alone runs with what the paper's system has; with 512 groups H800 alone also runs with
  the pacing of sessions that is part of `auto`, so that its gain can be told from that of affinity.
- `divided` are fixed divisions of the mixed cluster, which know the tasks before.
"""

from collections.abc import Iterator

from msgspec import structs

from artangram.core.rollout.affinity import affinity_of
from artangram.sim.fluid import alone_s, divided_s, mapped_s, needs_on
from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.divisions import best_division
from artangram_bench.simulated.rows import Row, Runs, compared, run_all
from artangram_bench.simulated.settings import Settings, endless
from artangram_bench.simulated.workload import AFFINITY, SHAPES, Reading

MIXED = {"H800": 64, "H20": 24}
ALONE_OF = {"H20": 208, "H800": 72}
"""Devices that cost as much."""
PAPER = {"H20": (1.30, 1.68), "H800": (1.12, 1.37)}

BLIND, DECLARED, LEARNED = "blind to hardware", "declared", "learned"


def affinity(settings: Settings) -> Iterator[Row]:
    """Batches of 512 trajectories."""
    for model in settings.models:
        yield from _rows(settings, model, Reading.TRAJECTORIES)


def crowded(settings: Settings) -> Iterator[Row]:
    """Batches of 512 groups: more conversations than the caches of H800 hold."""
    for model in settings.models:
        yield from _rows(settings, model, Reading.GROUPS)


def divided(settings: Settings) -> Iterator[Row]:
    """The best of nine fixed divisions beside learned affinity."""
    for model in settings.models:
        mixed = endless(MIXED, settings, model=model)
        best, scenario = best_division(mixed)
        runs = run_all({LEARNED: _ways(mixed)[LEARNED], best: scenario}, settings.seeds)
        yield compared(
            "fixed divisions",
            f"{model}, {LEARNED}, against {best}",
            baseline=runs[best],
            ours=runs[LEARNED],
            paper=None,
        )


def _ways(mixed: Scenario) -> dict[str, Scenario]:
    return {
        BLIND: structs.replace(mixed, knows_hardware=False),
        DECLARED: structs.replace(mixed, affinity=affinity_of(AFFINITY)),
        LEARNED: structs.replace(mixed, affinity=affinity_of("auto")),
    }


def _rows(settings: Settings, model: str, reading: Reading) -> Iterator[Row]:
    ways = _ways(endless(MIXED, settings, model=model, reading=reading))
    alone = {
        f"{kind} alone": endless({kind: count}, settings, model=model, reading=reading)
        for kind, count in ALONE_OF.items()
    }
    if reading is Reading.GROUPS:
        paced = structs.replace(alone["H800 alone"], affinity=affinity_of("auto"))
        alone["H800 alone, paced"] = paced
    runs = run_all(ways | alone, settings.seeds)
    for how in ways:
        for other in alone:
            yield _row(runs, how, other, model=model, reading=reading)
    for other in (DECLARED, BLIND):
        yield _row(runs, LEARNED, other, model=model, reading=reading)


def _row(runs: Runs, how: str, other: str, *, model: str, reading: Reading) -> Row:
    kind = other.removesuffix(" alone")
    return compared(
        "hardware affinity",
        f"{model}, {reading}, {how}, against {other}",
        baseline=runs[other],
        ours=runs[how],
        paper=PAPER.get(kind) if how != BLIND else None,
        fluid=_fluid(model, how, kind) if kind in PAPER else None,
    )


def _fluid(model: str, how: str, kind: str) -> float | None:
    """What a fluid would gain over devices of that kind alone, where caches find all."""
    means = {name: shape.mean for name, shape in SHAPES.items()}
    needs = {one: needs_on(one, means, model=model, hit_rate=1.0) for one in MIXED}
    best_s = {DECLARED: mapped_s(needs, MIXED, AFFINITY), LEARNED: divided_s(needs, MIXED)}
    return alone_s(needs[kind], ALONE_OF[kind]) / best_s[how] if how in best_s else None
