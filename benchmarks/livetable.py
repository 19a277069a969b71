"""The rows of the results table that were measured live, and those of the rollout plane."""

from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Any

from row import Row


def sandbox(figures: Any) -> Iterator[Row]:
    headlines = ("bare subprocess", "podman exec / ours", "create", "new core")
    for goal in figures["goals"]:
        if goal["value"] is not None:
            at_most = f"at most {goal['at_most']}" if goal["at_most"] is not None else ""
            at_least = f"at least {goal['at_least']}" if goal["at_least"] is not None else ""
            yield Row(
                f"Sandbox: {goal['what']}",
                f"{goal['value']:.3g}",
                at_most or at_least,
                is_headline=any(word in goal["what"] for word in headlines),
            )


def overhead(figures: Any) -> Iterator[Row]:
    for added in figures["added"]:
        both = zip(added["idle_ms"], added["answer_ms"], strict=True)
        yield Row(
            f"What the orchestrator adds to a 10 ms action at {figures['queued']} queued, journal "
            f"in {'a file' if added['journal'] == 'file' else 'memory'}",
            f"{median(idle + answer for idle, answer in both):.2f} ms",
            "2 ms",
            is_headline=added["journal"] == "file",
        )
    if figures["times_ray"] is not None:
        yield Row(
            "No-op actions per second of the embedded client over calls of Ray actors",
            f"{figures['times_ray']:.2f}x",
            "3x",
            is_headline=True,
        )


def live(figures: Any) -> Iterator[Row]:
    for duty in figures["duties"]:
        yield Row(
            f"Coding agents with real tools and test suites on {figures['cores']} cores, thinking "
            f"{duty['think_s']:g} s ({duty['duty']}): mean ACT against `pods`; CPU reserved per "
            "trajectory",
            f"{duty['better']:.2f}x better; {duty['reserved_share']:.0%} of it",
            "3x; 40 %",
            is_headline=True,
        )


def services(figures: Any) -> Iterator[Row]:
    share = figures["device_share"]
    yield Row(
        f"{figures['services']} judges of {figures['weights_mb']} MB on {share:.0%} of the devices "
        "of `static`: mean ACT; restore and dispatch as a share of execution",
        f"{figures['act_to_static']:.2f}x that of `static`; {figures['overhead_share']:.1%}",
        "1x; 10 %",
        is_headline=True,
    )
    if figures["better_than_cold"] is not None:
        yield Row(
            "Mean ACT of the same against `load-per-call`; a restore against a cold load",
            f"{figures['better_than_cold']:.0f}x better; {figures['restore_faster']:.0f}x faster",
            "20x; 10x",
            is_headline=True,
        )


def functions(figures: Any) -> Iterator[Row]:
    burst, hedging, killing = figures["burst"], figures["hedging"], figures["killing"]
    yield Row(
        f"A burst of {burst['calls']:,} function calls from zero workers to {figures['ceiling']}, "
        "and back to zero",
        f"{burst['calls'] / burst['took_s']:.0f} calls/s; {burst['to_zero_s']:.1f} s",
    )
    yield Row(
        "Functions: p99 with hedging when 2 % of workers are slow; calls lost when workers are "
        "killed",
        f"{_p99(hedging['plain_ms']) / _p99(hedging['hedged_ms']):.1f}x better; "
        f"{killing['lost']} of {killing['calls']} with {killing['killed']} killed",
        "2x; 0",
        is_headline=True,
    )


def quota(figures: Any) -> Iterator[Row]:
    alone, shared = figures["alone"], figures["shared"]
    yield Row(
        f"{alone['calls']:,} calls of {figures['clients']} processes to an API that enforces its "
        "limit: refused; share of the allowed rate",
        f"{alone['refused']}; {alone['share']:.1%}",
        "0; 95 %",
        is_headline=True,
    )
    yield Row(
        f"The same with a rival that takes {shared['rival_taken']} calls: answered",
        f"{shared['answered']} of {shared['calls']}",
        "all",
    )


def gateway(figures: Any) -> Iterator[Row]:
    for ratio in figures["ratios"]:
        yield Row(
            f"The gateway beside LiteLLM's proxy, {ratio['concurrency']} callers: requests per "
            "second; added latency p50",
            f"{ratio['throughput']:.1f}x; {ratio['share_of_added_p50']:.2f} of its",
            "5x; a third",
            is_headline=ratio["concurrency"] == 64,
        )
    crowd = figures["crowd"]
    yield Row(
        f"{crowd['sessions']:,} sessions of {crowd['turns']} turns, all at once: failed",
        f"{crowd['failed']}",
        "1,000 sessions, 0",
    )


def vllm(figures: Any) -> Iterator[Row]:
    tests = figures["tests"].values()
    yield Row(
        "Two real vLLM servers as two pools: tests passed; requests in flight that went on under "
        "new weights; worst difference of a logprob from our own model",
        f"{sum(t == 'passed' for t in tests)} of {len(tests)}; "
        f"{figures['answers_across_versions']} of {figures['requests_in_flight']}; "
        f"{figures['worst_logprob_difference']:.1g}",
        "all; all",
        is_headline=True,
    )


def rollout(figures: Any) -> Iterator[Row]:
    for gain in (*figures["gains"], *figures["checks"]):
        low, high = gain["spread"]
        yield Row(
            f"Simulated rollout, {gain['experiment']}: {gain['case']}",
            f"{gain['gain']:.2f}x ({low:.2f}-{high:.2f} by seed)",
            f"{_paper(gain)} (the paper)" if gain["paper"] else "",
        )
    for weights in figures["weights"]:
        yield Row(
            f"Simulated rollout, pull of new weights of {weights['model']}: share exposed",
            f"{weights['exposed_s'] / weights['accumulated_s']:.0%}",
            "22-33 % (the paper)",
        )
    for experiment in dict.fromkeys(gain["experiment"] for gain in figures["gains"]):
        yield _span(experiment, [g for g in figures["gains"] if g["experiment"] == experiment])


def _span(experiment: str, gains: list[Any]) -> Row:
    """From the least to the greatest gain of an experiment, beside the paper's."""
    ours = [gain["gain"] for gain in gains]
    theirs = [figure for gain in gains for figure in gain["paper"] or ()]
    return Row(
        f"Simulated rollout: gain of {experiment} "
        "([how the settings were chosen](docs/simulated-rollout.md))",
        f"{min(ours):.2f}x to {max(ours):.2f}x",
        f"{min(theirs):.2f}x to {max(theirs):.2f}x (the paper)",
        is_headline=True,
    )


def learn(figures: Any) -> Iterator[Row]:
    runs = figures["runs"]
    true = [run for run in runs if not run["is_shuffled"] and run["mode"] == "asynchronous"]
    dealt = [run for run in runs if run["is_shuffled"]]
    yield Row(
        f"Held-out success of the demo after {figures['steps']} steps, by seed",
        ", ".join(f"{run['before']:.2f} to {run['after']:.2f}" for run in true),
        "0.25 to 0.85, 4 of 5 seeds",
        is_headline=True,
    )
    if dealt:
        yield Row(
            "The same with rewards dealt out at random",
            ", ".join(f"{run['before']:.2f} to {run['after']:.2f}" for run in dealt),
            "no learning",
            is_headline=True,
        )
    for pair in figures["comparisons"]:
        waits = pair["latency_s"] > 0
        tools = f"search takes {pair['latency_s']:g} s" if waits else "tools only compute"
        yield Row(
            f"Wall time of the synchronous run over the asynchronous one, same samples, {tools}",
            f"{pair['speedup']:.2f}x (success {pair['after'][1]:.2f} and {pair['after'][0]:.2f})",
            "1.5x" if waits else "",
            is_headline=True,
        )


def isolation(figures: Any) -> Iterator[Row]:
    yield Row(
        "Healthy trajectories per second beside a slow, a hanging and a crashing environment, over "
        "without; how far blocks without faults differ",
        f"{figures['ratio']:.2f}; {figures['noise']:.2f}",
        "1 within noise",
        is_headline=True,
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
    "isolation": isolation,
    "learn": learn,
}

COMMANDS = {"vllm": "make test-vllm"}
"""Where it is not `artangram bench` and the name."""
