"""The rows of the results tables that were measured live: sandboxes, calls, the gateway."""

from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Any

from row import Goal, Row, at_least, at_most

SANDBOX = {
    "ours / bare subprocess.run": "A command in a warm sandbox takes {}x a bare `subprocess.run`",
    "podman exec / ours": "A command in a warm sandbox is {}x faster than `podman exec`",
    "docker SDK exec / ours": "A command in a warm sandbox is {}x faster than the Docker SDK",
    "SWE-ReX run_in_session / ours": "A command in a warm sandbox is {}x faster than SWE-ReX's "
    "`run_in_session`",
    "podman run -d / ours, create": "Making a sandbox is {}x faster than `podman run -d`",
    "ours / podman exec per second, 8 clients": "Eight clients run {}x as many commands a second "
    "as with `podman exec`",
    "ours / SWE-ReX execute per second, 8 clients": "Eight clients run {}x as many commands a "
    "second as with SWE-ReX's `execute`",
    "exec with 3000 sandboxes / with 10, each / bare": "A command beside 3,000 live sandboxes "
    "takes {}x what it takes beside 10, each divided by a bare `subprocess.run` at that time",
    "lease with 3000 sandboxes / with 10": "A lease beside 3,000 live sandboxes takes {}x what it "
    "takes beside 10",
    "MiB per sandbox with 3000": "Each of 3,000 live sandboxes takes {} MiB",
    "throughput of two cores over one": "A command that gets a second core while it runs is {}x as "
    "fast",
    "ms until a new core is used, p95": "A running command uses a new core after {} ms (p95)",
}
"""How the table words what the bench compares."""


def sandbox(figures: Any) -> Iterator[Row]:
    for goal in figures["goals"]:
        value, what = goal["value"], goal["what"]
        if value is None:
            continue
        template = SANDBOX.get(what, f"Sandboxes, {what}: {{}}")
        unit = "x" if "{}x" in template else ""
        limit, judged = goal["at_most"], at_most
        if limit is None:
            limit, judged = goal["at_least"], at_least
        best = "" if goal.get("limit") is None else f" (at best {goal['limit']:.3g}{unit})"
        yield Row(
            template.replace(f"{{}}{unit}", f"**{value:.3g}{unit}**") + best,
            judged(value, limit, unit),
        )


def overhead(figures: Any) -> Iterator[Row]:
    for added in figures["added"]:
        both = zip(added["idle_ms"], added["answer_ms"], strict=True)
        ms = median(idle + answer for idle, answer in both)
        where = "a file" if added["journal"] == "file" else "memory"
        yield Row(
            f"The orchestrator adds **{ms:.2f} ms** to an action of 10 ms while "
            f"{figures['queued']} wait, journal in {where}",
            at_most(ms, 2, " ms"),
        )
    if (times_ray := figures["times_ray"]) is not None:
        yield Row(
            f"The embedded client runs **{times_ray:.2f}x** as many no-op actions a second as Ray "
            "calls actors",
            at_least(times_ray, 3),
        )


def ray(figures: Any) -> Iterator[Row]:
    hosts = "Two agents over TLS run"
    for what, times, least in (
        ("Ray runs tasks", figures["times_tasks"], 3),
        ("callers await Ray's async actors", figures["times_calls"], 4),
    ):
        yield Row(
            f"{hosts} **{times:.2f}x** as many no-op actions a second as {what} on as many hosts",
            at_least(times, least),
        )
    tcp = figures["tcp_of_unix"]
    yield Row(
        f"One agent over TLS runs **{tcp:.2f}x** as many actions a second as over a unix socket",
        at_least(tcp, 0.6),
    )
    cpu = {rate["name"]: median(rate["cpu_us"]) for rate in figures["rates"]}
    yield Row(
        f"A no-op action costs **{cpu['2 agents over TLS']:.0f} us** of CPU time in all processes; "
        f"a Ray task {figures['cpu_of_tasks']:.2f}x, an awaited call {figures['cpu_of_calls']:.2f}x"
    )
    trace = (
        f"{figures['trajectories']} coding trajectories with real sandboxes on {figures['cores']} "
        "cores: actions are"
    )
    for size, better in (
        ("`num_cpus=1`", figures["better_than_one"]),
        ("their largest size", figures["better_than_largest"]),
    ):
        text = f"{trace} **{better:.2f}x** faster than as Ray tasks with {size}"
        yield Row(text, at_least(better, 1.5))


def quickstart(figures: Any) -> Iterator[Row]:
    alone, on_ray = figures["alone"], figures["on_ray"]
    yield Row(
        f"The quick start's task ends at a reward of **{on_ray['last']:.2f}** after "
        f"{figures['steps']} steps on three hosts with Ray, one of which loses power; on one "
        f"machine at {alone['last']:.2f}",
        at_least(on_ray["last"], 0.85, ""),
    )
    elsewhere = sum(
        count for host, count in figures["failed_by_host"].items() if host != figures["lost_host"]
    )
    yield Row(
        f"The loss of that host fails **{elsewhere}** actions on others",
        at_most(elsewhere, 0, ""),
    )


LIVE_PEERS = {
    "pods:0.5/4": "with pods of request 0.5 and limit 4",
    "overcommit": "with time sharing by the kernel",
    "tangram": "with the algorithm of ARL-Tangram",
}


def live(figures: Any) -> Iterator[Row]:
    rounds = "one round" if figures["rounds"] == 1 else f"{figures['rounds']} rounds"
    for duty in figures["duties"]:
        agents = (
            f"{figures['trajectories']} coding agents with real tools and test suites on "
            f"{figures['cores']} cores, thinking for {duty['think_s']:g} s, {rounds}"
        )
        yield Row(
            f"{agents}: actions are **{duty['better']:.2f}x** faster than with a pod of one core "
            "for each trajectory",
            at_least(duty["better"], 3),
        )
        by = {row["policy"]: row["act_mean_s"] for row in duty["rows"]}
        peers = {name: by[name] / by["elastic"] for name in LIVE_PEERS if name in by}
        yield Row(
            f"{agents}: actions are "
            + ", ".join(
                f"**{gain:.2f}x** faster than {LIVE_PEERS[name]}" for name, gain in peers.items()
            )
        )
        share = 100 * duty["reserved_share"]
        yield Row(
            f"{agents}: a trajectory reserves **{share:.0f} %** of the CPU that its pod would",
            at_most(share, 40, " %"),
        )


def services(figures: Any) -> Iterator[Row]:
    faster, overhead = 1 / figures["act_to_static"], 100 * figures["overhead_share"]
    judges = f"{figures['services']} judges of {figures['weights_mb']} MB"
    rounds = figures["act_spread"]
    yield Row(
        f"Calls of {judges} are **{faster:.2f}x** faster on {figures['device_share']:.0%} of the "
        f"devices than with a device for each (the mean round {1 / rounds['ratio']:.2f}x, 95 % "
        f"between {1 / rounds['high']:.2f} and {1 / rounds['low']:.2f})",
        at_least(faster, 1),
    )
    yield Row(
        f"Restoring and dispatching take **{overhead:.1f} %** of what answering these calls takes",
        at_most(overhead, 10, " %"),
    )
    if figures["better_than_cold"] is not None:
        cold, restore = figures["better_than_cold"], figures["restore_faster"]
        yield Row(
            f"Calls of {judges} are **{cold:.0f}x** faster than if each call loads its model",
            at_least(cold, 20),
        )
        yield Row(
            f"Restoring a judge is **{restore:.0f}x** faster than loading it",
            at_least(restore, 10),
        )


def functions(figures: Any) -> Iterator[Row]:
    burst, hedging, killing = figures["burst"], figures["hedging"], figures["killing"]
    yield Row(
        f"A burst of {burst['calls']:,} function calls from zero workers to {figures['ceiling']} "
        f"runs at **{burst['calls'] / burst['took_s']:.0f} calls/s** and is back to zero "
        f"**{burst['to_zero_s']:.1f} s** later"
    )
    better = _p99(hedging["plain_ms"]) / _p99(hedging["hedged_ms"])
    yield Row(
        f"With 2 % of the workers slow, the p99 of functions is **{better:.1f}x** shorter with "
        "hedging",
        at_least(better, 2),
    )
    yield Row(
        f"With {killing['killed']} workers killed, **{killing['lost']}** of {killing['calls']} "
        "function calls are lost",
        at_most(killing["lost"], 0, ""),
    )


def quota(figures: Any) -> Iterator[Row]:
    alone, shared = figures["alone"], figures["shared"]
    yield Row(
        f"{figures['clients']} processes call an API that enforces its limit: "
        f"**{alone['refused']}** of {alone['calls']:,} calls are refused",
        at_most(alone["refused"], 0, ""),
    )
    yield Row(
        f"The same calls use **{100 * alone['share']:.1f} %** of the rate that is allowed",
        at_least(100 * alone["share"], 95, " %"),
    )
    yield Row(
        f"When another client takes {shared['rival_taken']} calls of the quota, "
        f"**{shared['answered']}** of our {shared['calls']} are answered",
        Goal("all", shared["answered"] == shared["calls"]),
    )


def gateway(figures: Any) -> Iterator[Row]:
    for ratio in figures["ratios"]:
        callers = f"{ratio['concurrency']} caller{'s' if ratio['concurrency'] > 1 else ''}"
        yield Row(
            f"The gateway answers {callers} **{ratio['throughput']:.1f}x** as many requests a "
            "second as LiteLLM's proxy",
            at_least(ratio["throughput"], 10 if ratio["concurrency"] == 64 else 5),
        )
        added = ratio["share_of_added_p50"]
        yield Row(
            f"For {callers} the gateway adds **{added:.2f}x** the time that LiteLLM's proxy adds",
            Goal("at most a third", added <= 1 / 3),
        )
    crowd = figures["crowd"]
    yield Row(
        f"Of {crowd['sessions']:,} sessions of {crowd['turns']} turns, all at once, "
        f"**{crowd['failed']}** fail",
        Goal("0 of 1,000", crowd["sessions"] >= 1000 and crowd["failed"] == 0),
    )
    if (burst := figures.get("burst")) is None:
        return  # A result that is older than this measurement.
    yield Row(
        f"Of {burst['requests']} requests that OpenAI's client sends at once, "
        f"**{burst['failed']}** fail",
        Goal("0 of 200", burst["requests"] >= 200 and burst["failed"] == 0),
    )


def vllm(figures: Any) -> Iterator[Row]:
    results = figures["tests"].values()
    passed, flying = sum(t == "passed" for t in results), figures["requests_in_flight"]
    went_on = figures["answers_across_versions"]
    yield Row(
        f"Two real vLLM servers as two pools pass **{passed}** of {len(results)} tests",
        Goal("all", passed == len(results)),
    )
    yield Row(
        f"**{went_on}** of {flying} requests in flight there go on under new weights; logprobs "
        f"differ by at most {figures['worst_logprob_difference']:.1g} from our own model",
        Goal("all", went_on == flying),
    )


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "sandbox": sandbox,
    "overhead": overhead,
    "ray": ray,
    "quickstart": quickstart,
    "live": live,
    "services": services,
    "functions": functions,
    "quota": quota,
    "gateway": gateway,
    "vllm": vllm,
}

COMMANDS = {"vllm": "make test-vllm"}
"""Where it is not `artangram bench` and the name."""
