"""The rows of the results table that were measured live."""

from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Any

Row = tuple[str, str]


def sandbox(figures: Any) -> Iterator[Row]:
    for goal in figures["goals"]:
        if goal["value"] is not None:
            yield f"Sandbox, medians: {goal['what']}", f"{goal['value']:.3g}"


def overhead(figures: Any) -> Iterator[Row]:
    for added in figures["added"]:
        both = zip(added["idle_ms"], added["answer_ms"], strict=True)
        yield (
            f"What the orchestrator adds to a 10 ms action at {figures['queued']} queued, journal "
            f"{added['journal']}, median",
            f"{median(idle + answer for idle, answer in both):.2f} ms",
        )
    if figures["times_ray"] is not None:
        yield (
            "No-op actions per second of the embedded client over calls of Ray actors",
            f"{figures['times_ray']:.2f}x",
        )


def live(figures: Any) -> Iterator[Row]:
    yield (
        f"Coding agents with real tools and test suites on {figures['cores']} cores: mean ACT "
        "against `pods`, and CPU reserved per trajectory",
        f"{figures['better']:.2f}x better; {figures['reserved_share']:.0%} of it",
    )


def services(figures: Any) -> Iterator[Row]:
    share = figures["device_share"]
    yield (
        f"{figures['services']} judges of {figures['weights_mb']} MB on {share:.0%} of the devices "
        "of `static`: mean ACT, and restore and dispatch as a share of execution",
        f"{figures['act_to_static']:.2f}x that of `static`; {figures['overhead_share']:.1%}",
    )
    if figures["better_than_cold"] is not None:
        yield (
            "Against `load-per-call`: mean ACT; a restore against a cold load",
            f"{figures['better_than_cold']:.0f}x better; {figures['restore_faster']:.0f}x faster",
        )


def functions(figures: Any) -> Iterator[Row]:
    burst, hedging, killing = figures["burst"], figures["hedging"], figures["killing"]
    yield (
        f"A burst of {burst['calls']:,} function calls from zero workers to {figures['ceiling']}, "
        "and back to zero",
        f"{burst['calls'] / burst['took_s']:.0f} calls/s; {burst['to_zero_s']:.1f} s",
    )
    yield (
        "p99 with hedging when 2 % of workers are slow; calls lost when workers are killed",
        f"{_p99(hedging['plain_ms']) / _p99(hedging['hedged_ms']):.1f}x better; "
        f"{killing['lost']} of {killing['calls']} with {killing['killed']} killed",
    )


def quota(figures: Any) -> Iterator[Row]:
    alone, shared = figures["alone"], figures["shared"]
    yield (
        f"{alone['calls']:,} calls of {figures['clients']} processes to an API that enforces its "
        "limit: refused, and share of the allowed rate",
        f"{alone['refused']}; {alone['share']:.1%}",
    )
    yield (
        f"The same with a rival that takes {shared['rival_taken']} calls: answered",
        f"{shared['answered']} of {shared['calls']}",
    )


def gateway(figures: Any) -> Iterator[Row]:
    for ratio in figures["ratios"]:
        yield (
            f"The gateway beside LiteLLM's proxy, {ratio['concurrency']} callers: requests per "
            "second; added latency p50",
            f"{ratio['throughput']:.1f}x; {ratio['share_of_added_p50']:.2f} of its",
        )
    crowd = figures["crowd"]
    yield (
        f"{crowd['sessions']:,} sessions of {crowd['turns']} turns, all at once: failed",
        f"{crowd['failed']}",
    )


def vllm(figures: Any) -> Iterator[Row]:
    tests = figures["tests"].values()
    yield (
        "Two real vLLM servers as two pools: tests passed; requests in flight that went on under "
        "new weights; worst difference of a logprob from our own model",
        f"{sum(t == 'passed' for t in tests)} of {len(tests)}; "
        f"{figures['answers_across_versions']} of {figures['requests_in_flight']}; "
        f"{figures['worst_logprob_difference']:.1g}",
    )


def rollout(figures: Any) -> Iterator[Row]:
    by: dict[str, list[Any]] = {}
    for gain in figures["gains"]:
        by.setdefault(gain["experiment"], []).append(gain)
    for experiment, gains in by.items():
        cases = "; ".join(f"{g['case']} {g['gain']:.2f}x ({_paper(g)})" for g in gains)
        yield (
            f"Simulated rollout, {experiment}: gain (the paper's); how the settings were chosen is "
            "in [docs/simulated-rollout.md](docs/simulated-rollout.md)",
            cases,
        )
    if figures["weights"]:
        cases = "; ".join(
            f"{w['model']} {w['exposed_s'] / w['accumulated_s']:.0%}" for w in figures["weights"]
        )
        yield "Simulated rollout, exposed share of the pull of new weights", cases


def learn(figures: Any) -> Iterator[Row]:
    runs = figures["runs"]
    true = [run for run in runs if not run["is_shuffled"] and run["mode"] == "asynchronous"]
    dealt = [run for run in runs if run["is_shuffled"]]
    yield (
        f"Held-out success of the demo after {figures['steps']} steps, by seed",
        ", ".join(f"{run['before']:.2f} to {run['after']:.2f}" for run in true),
    )
    if dealt:
        yield (
            "The same with rewards dealt out at random",
            ", ".join(f"{run['before']:.2f} to {run['after']:.2f}" for run in dealt),
        )
    for run in runs:
        if run["mode"] == "synchronous":
            ours = next(other for other in true if other["seed"] == run["seed"])
            yield (
                "Wall time of the synchronous run over the asynchronous one, same samples",
                f"{run['training_s'] / ours['training_s']:.2f}x "
                f"(success {run['after']:.2f} and {ours['after']:.2f})",
            )


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


def _paper(gain: Any) -> str:
    return "-".join(f"{figure:.2f}" for figure in sorted(set(gain["paper"])))


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "sandbox": sandbox,
    "overhead": overhead,
    "live": live,
    "services": services,
    "functions": functions,
    "quota": quota,
    "gateway": gateway,
    "vllm": vllm,
    "rollout": rollout,
    "learn": learn,
}

COMMANDS = {"vllm": "make test-vllm"}
"""Where it is not `artangram bench` and the name."""
