"""The rows of the results tables that are about rollout and training, simulated and real."""

from collections.abc import Callable, Iterator
from typing import Any

from row import Goal, Row, at_least, at_most

BEGINS_BELOW, ENDS_ABOVE = 0.25, 0.85
"""What a model that learned was before and is after, as shares of success."""


def rollout(figures: Any) -> Iterator[Row]:
    for gain in (*figures["gains"], *figures["checks"]):
        low, high = gain["spread"]
        fluid = "" if gain["fluid"] is None else f"; a fluid model gains {gain['fluid']:.2f}"
        verdict = "" if gain["verdict"] is None else f"; {gain['verdict']}"
        bound = "; the trainer binds" if gain["binds"] == "trainer" else ""
        yield Row(
            f"Simulated rollout, {gain['experiment']}: {gain['case']}: **{gain['gain']:.2f}x** "
            f"({_spread(low, high, len(figures['settings']['seeds']))}{fluid}{bound}{verdict})",
            Goal(f"{_paper([gain])} (the paper)", _reaches(gain)) if gain["paper"] else None,
        )
    for weights in figures["weights"]:
        exposed = 100 * weights["exposed_s"] / weights["accumulated_s"]
        yield Row(
            f"Simulated rollout: sampling stops for **{exposed:.0f} %** of the time that moving "
            f"new weights of {weights['model']} takes",
            at_most(exposed, round(100 * weights["paper_share"]), " % (the paper)"),
        )


def _spread(low: float, high: float, seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{low:.2f} to {high:.2f} of {seeds} seeds"


def _reaches(gain: Any) -> bool:
    return bool(gain["gain"] >= min(gain["paper"]))


def _paper(gains: list[Any]) -> str:
    figures = [figure for gain in gains for figure in gain["paper"]]
    return " to ".join(f"{figure:.2f}x" for figure in sorted({min(figures), max(figures)}))


def isolation(figures: Any) -> Iterator[Row]:
    ratio, noise = figures["ratio"], figures["noise"]
    yield Row(
        f"Beside a slow, a hanging and a crashing environment healthy ones make **{ratio:.2f}x** "
        "the trajectories a second that they make without",
        Goal(f"1x within noise ({noise:.2f})", abs(ratio - 1) <= noise),
    )


def learn(figures: Any) -> Iterator[Row]:
    runs = figures["runs"]
    true = [run for run in runs if not run["is_shuffled"] and run["mode"] == "asynchronous"]
    learned = [run for run in true if _has_learned(run)]
    yield Row(
        f"The demo's success on held-out problems after {figures['steps']} steps, by seed: "
        f"**{_from_to(true)}**",
        Goal(
            f"{BEGINS_BELOW:g} at most to {ENDS_ABOVE:g} at least for 4 of 5",
            len(learned) >= 0.8 * len(true),
        ),
    )
    if dealt := [run for run in runs if run["is_shuffled"]]:
        yield Row(
            f"The same with shuffled rewards: **{_from_to(dealt)}**",
            Goal("no learning", all(run["after"] <= BEGINS_BELOW for run in dealt)),
        )
    for pair in figures["comparisons"]:
        waits = pair["latency_s"] > 0
        tools = f"searching takes {pair['latency_s']:g} s" if waits else "tools only compute"
        yield Row(
            f"The demo is **{pair['speedup']:.2f}x** faster than if it trains synchronously on as "
            f"many samples, where {tools} (success {pair['after'][0]:.2f}, synchronously "
            f"{pair['after'][1]:.2f})",
            at_least(pair["speedup"], 1.5) if waits else None,
        )


def _has_learned(run: Any) -> bool:
    return bool(run["before"] <= BEGINS_BELOW and run["after"] >= ENDS_ABOVE)


def _from_to(runs: list[Any]) -> str:
    return ", ".join(f"{run['before']:.2f} to {run['after']:.2f}" for run in runs)


ROLLOUTS = (
    *("affinity", "crowded", "sweep", "split", "asynchrony", "trajectories", "redundancy"),
    *("weights", "calibration", "ablation", "divided"),
)
"""Experiments of the simulated rollout, each with a result of its own."""

ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    **{f"rollout_{name}": rollout for name in ROLLOUTS},
    "isolation": isolation,
    "learn": learn,
}
