"""Runs that are compared, and what came out: one row for each comparison.

A gain compares runs of the same seed, that is, of the same problems.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum
from multiprocessing import get_context
from statistics import fmean

from msgspec import Struct, structs

from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.run import Outcome, simulate


class PaperVerdict(StrEnum):
    """How a gain compares with the paper's, on both sides."""

    REPRODUCED = "reproduced"
    AHEAD = "ahead"
    BEHIND = "behind"
    ANOTHER_REGIME = "another regime"


NEAR, FAR = 0.05, 0.25
"""Beyond the paper's figures by a smaller share is reproduced; by a larger one, something else
limits the step here than there."""

TRAINER_BOUND = 0.95
"""Share of a step for which the trainer is busy: above it, sampling faster gains nothing."""


def verdict_of(gain: float, paper: tuple[float, float], *, is_trainer_bound: bool) -> PaperVerdict:
    """Against the paper's least and most."""
    least, most = paper
    if gain > most * (1.0 + FAR) or (is_trainer_bound and gain < least * (1.0 - NEAR)):
        return PaperVerdict.ANOTHER_REGIME
    if gain > most * (1.0 + NEAR):
        return PaperVerdict.AHEAD
    return PaperVerdict.REPRODUCED if gain >= least * (1.0 - NEAR) else PaperVerdict.BEHIND


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
    verdict: PaperVerdict | None
    """Beside the paper's gain."""
    binds: str
    """What limits a step of ours: the trainer, or sampling."""
    hit_rates: dict[str, float]
    """Of ours, by task: the share of prompt tokens that were in a prefix cache."""
    rerouted: float
    """Share of the tokens that ours trained on that were read again because a session moved."""
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
    is_bound = fmean(one.training for one in ours) > TRAINER_BOUND
    verdict = None if paper is None else verdict_of(gain, paper, is_trainer_bound=is_bound)
    return Row(
        experiment=experiment,
        case=case,
        baseline_s=fmean(one.step_s for one in baseline),
        ours_s=fmean(one.step_s for one in ours),
        gain=gain,
        spread=(min(gains), max(gains)),
        paper=paper,
        reaches=None if paper is None else round(gain, 2) >= round(paper[0], 2),
        verdict=verdict,
        binds="trainer" if is_bound else "sampling",
        hit_rates={
            task: fmean(one.hit_rates.get(task, 0.0) for one in ours) for task in ours[0].hit_rates
        },
        rerouted=fmean(one.reread_tokens / max(1, sum(one.tokens)) for one in ours),
        fluid=fluid,
        cancelled=fmean(one.cancelled for one in ours),
        cut_length=_mean([one.cut_length for one in ours]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
