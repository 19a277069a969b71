"""Does hardware that fits pay? Mixed clusters against clusters of one kind that cost the same.

- The paper's batch of 512 has no unit: `affinity` has batches of 512 trajectories, `crowded` of 512
  groups of eight, for which the caches of H800 are too small.
- One kind alone runs with what the paper's system has; with 512 groups H800 alone also runs with
  the pacing of sessions that is part of `auto`, so that its gain can be told from that of affinity.
- `sweep` varies what the paper does not report, and compares with the best way at each point.
- `divided` are fixed divisions of the mixed cluster, which know the tasks before.
"""

from collections.abc import Iterator
from itertools import product

from msgspec import structs

from artangram.core.rollout.affinity import affinity_of
from artangram.sim.fluid import alone_s, divided_s, mapped_s, needs_on
from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.divisions import best_division
from artangram_bench.simulated.rows import Row, Runs, compared, run_all
from artangram_bench.simulated.run import Outcome
from artangram_bench.simulated.settings import Settings, endless
from artangram_bench.simulated.workload import AFFINITY, SHAPES, Reading

MIXED = {"H800": 64, "H20": 24}
ALONE_OF = {"H20": 208, "H800": 72}
"""Devices that cost as much."""
PAPER = {"H20": (1.30, 1.68), "H800": (1.12, 1.37)}

MIXES = {
    "all tasks alike": {},
    "long conversations": {"math": 1, "game": 1, "lake": 3, "shop": 3},
    "long answers": {"math": 3, "game": 3, "lake": 1, "shop": 1},
}
"""Groups of each task."""
HIT_RATES = (1.0, 0.9, 0.7)
"""Shares of what caches hold that is found."""

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


def sweep(settings: Settings) -> Iterator[Row]:
    """Learned affinity against the best of all other ways, over hit rates and mixes."""
    for model in settings.models:
        for (mix, shares), rate in product(MIXES.items(), HIT_RATES):
            mixed = _varied(endless(MIXED, settings, model=model), shares, rate)
            alone = {
                kind: _varied(endless({kind: count}, settings, model=model), shares, rate)
                for kind, count in ALONE_OF.items()
            }
            runs = run_all(_ways(mixed) | alone, settings.seeds)
            others = [runs[name] for name in runs if name != LEARNED]
            yield compared(
                "sweep",
                f"{model}, {mix}, hits x {rate:g}, learned, against the best of the others",
                baseline=[min(same, key=_step_s) for same in zip(*others, strict=True)],
                ours=runs[LEARNED],
                paper=None,
            )


def _varied(scenario: Scenario, shares: dict[str, int], hit_rate: float) -> Scenario:
    return structs.replace(scenario, shares=shares, hit_rate=hit_rate)


def _step_s(outcome: Outcome) -> float:
    return outcome.step_s


def _ways(mixed: Scenario) -> dict[str, Scenario]:
    return {
        BLIND: structs.replace(mixed, knows_hardware=False),
        DECLARED: structs.replace(mixed, affinity=affinity_of(AFFINITY)),
        LEARNED: structs.replace(mixed, affinity=affinity_of("auto")),
    }


def _rows(settings: Settings, model: str, reading: Reading) -> Iterator[Row]:
    ways = _ways(endless(MIXED, settings, model=model, reading=reading))
    if reading is Reading.GROUPS:
        del ways[BLIND]  # It reads as much again as declared does, and takes as long.
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
    for other in [how for how in ways if how != LEARNED]:
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
