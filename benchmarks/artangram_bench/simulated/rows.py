"""Runs that are compared, and what came out: one row for each comparison.

A gain compares runs of the same seed, that is, of the same problems.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean

from msgspec import Struct, structs

from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.run import Outcome, simulate


class Row(Struct, frozen=True, kw_only=True):
    """One comparison: how many times faster than its baseline something is."""

    experiment: str
    case: str
    baseline_s: float
    """A step."""
    ours_s: float
    gain: float
    """Mean over the seeds, in the time of a step or, between systems, in tokens per second."""
    spread: tuple[float, float]
    """The least and the most of them."""
    paper: tuple[float, float] | None
    """The paper's gain, from and to; nothing where it has none."""
    reaches: bool | None
    """Is the gain at least the paper's least?"""
    fluid: float | None = None
    """What a fluid of the same tasks would gain, on devices that are always busy."""
    cancelled: float
    """The share of ours that was started and cut off, as stale or more than needed."""
    cut_length: float | None
    """Its tokens, so far as it had come, over those of what was kept of the same task."""


Runs = Mapping[str, Sequence[Outcome]]
"""By name, one for each seed."""


def run_all(scenarios: Mapping[str, Scenario], seeds: Sequence[int]) -> Runs:
    """A run of every scenario for each seed, on all cores."""
    every = [structs.replace(one, seed=seed) for one in scenarios.values() for seed in seeds]
    # Fresh processes: a fork would copy the caller's threads.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        outcomes = iter(list(pool.map(simulate, every)))
    return {name: [next(outcomes) for _ in seeds] for name in scenarios}


def compared(
    experiment: str,
    case: str,
    *,
    baseline: Sequence[Outcome],
    ours: Sequence[Outcome],
    paper: tuple[float, float] | None,
    in_tokens: bool = False,
    fluid: float | None = None,
) -> Row:
    pairs = list(zip(baseline, ours, strict=True))
    gains = [theirs.step_s / mine.step_s for theirs, mine in pairs]
    if in_tokens:
        gains = [mine.tokens_per_s / theirs.tokens_per_s for theirs, mine in pairs]
    gain = fmean(gains)
    return Row(
        experiment=experiment,
        case=case,
        baseline_s=fmean(one.step_s for one in baseline),
        ours_s=fmean(one.step_s for one in ours),
        gain=gain,
        spread=(min(gains), max(gains)),
        paper=paper,
        reaches=None if paper is None else round(gain, 2) >= round(paper[0], 2),
        fluid=fluid,
        cancelled=fmean(one.cancelled for one in ours),
        cut_length=_mean([one.cut_length for one in ours]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
