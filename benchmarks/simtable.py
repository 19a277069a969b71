"""The rows of the results tables that say what the scheduler decides, and at what cost."""

from collections.abc import Callable, Iterable, Iterator
from math import exp, log
from typing import Any

from row import Goal, Row, at_least, at_most

SIZES = (256, 192, 128, 96)
STATIC_GPUS = 40
"""Of ten services with four each."""


def lab(figures: Any) -> Iterator[Row]:
    rows = {(r["policy"], r["estimates"], r["squeeze_penalty"]): r for r in figures}
    num_traces = len(figures[0]["ratios"])
    for estimates, penalty, limit in (
        ("learned", 0.1, None),
        ("exact", 0.1, 1.12),
        ("noisy:1.0", 0.1, 1.18),
        ("exact", 0.0, 1.04),
        ("noisy:1.0", 0.0, 1.08),
    ):
        ratio = rows["elastic", estimates, penalty]["ratio"]
        yield Row(
            f"Simulated, {num_traces} traces, {_TOLD[estimates]}, squeezing costs {penalty:.0%}: "
            f"actions take **{ratio:.2f}x** the lower bound for actions that keep their size",
            None if limit is None else at_most(ratio, limit),
        )
    for peer, label, least, least_exact in (
        ("tangram", "the algorithm of ARL-Tangram", 0.99, 1.8),
        ("fixed:4", "four cores for each action", 0.99, 2.5),
        ("overcommit", "time sharing by the kernel", 0.99, None),
    ):
        ratio, exact = (
            rows[peer, told, 0.1]["ratio"] / rows["elastic", told, 0.1]["ratio"]
            for told in ("learned", "exact")
        )
        yield Row(
            f"Simulated, the same traces, durations learned: actions are **{ratio:.2f}x** faster "
            f"than with {label}",
            at_least(ratio, least),
        )
        yield Row(
            f"Simulated, the same traces, exact durations: **{exact:.2f}x** faster than with "
            f"{label}",
            None if least_exact is None else at_least(exact, least_exact),
        )
    for peer, label, limit in (
        ("overcommit", "time sharing by the kernel", 1.05),
        ("tangram", "the algorithm of ARL-Tangram", None),
    ):
        slowest, theirs = (rows[name, "learned", 0.1]["p99_s"] for name in ("elastic", peer))
        yield Row(
            f"Simulated, the same traces, durations learned: the 99th percentile is "
            f"**{slowest / theirs:.2f}x** that of {label}",
            None if limit is None else at_most(slowest / theirs, limit),
        )


_TOLD = {
    "learned": "durations learned",
    "exact": "exact durations",
    "noisy:1.0": "wrong durations and curves",
}


def coding(figures: Any) -> Iterator[Row]:
    live = [r for r in figures if r["estimates"] == "learned"]
    by = {(r["cores"], r["policy"]): r for r in live}

    def ratio(peer: str, cores: int, figure: str = "act_mean_s") -> float:
        gain: float = by[cores, peer][figure] / by[cores, "elastic"][figure]
        return gain

    for peer, label, least, judged_on in (
        ("pods:1", "a pod of one core for each trajectory", 6.0, (256,)),
        ("pods:0.5/4", "pods of request 0.5 and limit 4", 6.0, (256,)),
        ("tangram", "the algorithm of ARL-Tangram", 1.3, (256, 192, 128)),
        ("overcommit", "time sharing by the kernel", 1.3, (128, 96)),
    ):
        where = ", ".join(str(cores) for cores in judged_on)
        is_reached = all(ratio(peer, cores) >= least for cores in judged_on)
        goal = Goal(f"at least {least:g}x on {where}", is_reached)
        yield Row(
            f"Simulated coding agents on {', '.join(map(str, SIZES))} cores, durations learned: "
            f"actions are **{_each(ratio(peer, cores) for cores in SIZES)}** faster than with "
            + label
            + _most([by[cores, peer] for cores in SIZES]),
            goal,
        )
    exact = {r["cores"]: r for r in figures if (r["policy"], r["estimates"]) == _CEILING}
    told = (by[at, "overcommit"]["act_mean_s"] / exact[at]["act_mean_s"] for at in SIZES)
    yield Row(
        f"Simulated coding agents on {', '.join(map(str, SIZES))} cores: with exact durations "
        f"actions would be **{_each(told)}** faster than with time sharing by the kernel"
    )
    scarce = sorted(cores for cores in {r["cores"] for r in live} if cores <= SIZES[0])
    mean = exp(sum(log(ratio("overcommit", cores)) for cores in scarce) / len(scarce))
    yield Row(
        f"Simulated coding agents on {scarce[0]} to {scarce[-1]} cores, durations learned: in the "
        f"geometric mean actions are **{mean:.2f}x** faster than with time sharing by the kernel",
        at_least(mean, 1.15),
    )
    steps = max(
        by[cores, "elastic"]["step_s"]
        / min(by[cores, peer]["step_s"] for peer in ("overcommit", "tangram"))
        for cores in scarce
    )
    yield Row(
        f"Simulated coding agents on {scarce[0]} to {scarce[-1]} cores, durations learned: steps "
        f"take at most **{steps:.3f}x** as long as with the better of kernel and ARL-Tangram",
        at_most(steps, 1.02),
    )
    tails = max(1.0 / ratio("overcommit", cores, "p99_s") for cores in scarce)
    theirs = max(1.0 / ratio("tangram", cores, "p99_s") for cores in scarce)
    yield Row(
        f"Simulated coding agents on {scarce[0]} to {scarce[-1]} cores, durations learned: the "
        f"99th percentile is at most **{tails:.2f}x** that of the kernel ({theirs:.2f}x that of "
        "ARL-Tangram)",
        at_most(tails, 1.05),
    )
    worst = min(
        ratio(peer, cores)
        for cores in {r["cores"] for r in live}
        for peer in ("overcommit", "tangram")
    )
    yield Row(
        "Simulated coding agents on every number of cores tried, durations learned: actions are at "
        f"least **{worst:.3f}x** faster than with the kernel and with ARL-Tangram",
        at_least(worst, 0.99),
    )
    yield _cores_needed(by, "pods of whole cores", ("pods:1", "pods:2"))
    yield _cores_needed(by, "pods of request 0.5 and limit 4", ("pods:0.5/4",))


def timeouts(figures: Any) -> Iterator[Row]:
    by = {(r["policy"], r["cores"]): r for r in figures}
    sizes = sorted({r["cores"] for r in figures}, reverse=True)
    ours, kernel = (
        ", ".join(str(by[name, cores]["timed_out"]) for cores in sizes)
        for name in ("elastic", "overcommit")
    )
    total = sum(by["elastic", cores]["timed_out"] for cores in sizes)
    yield Row(
        f"Simulated coding agents on {', '.join(map(str, sizes))} cores: **{ours}** of "
        f"{figures[0]['tests']} tests time out that all end in time on 16 idle cores "
        f"({kernel} with time sharing by the kernel)",
        at_most(total, 0, " on all of them"),
    )


_CEILING = ("elastic", "exact")


def _each(ratios: Iterable[float]) -> str:
    return ", ".join(f"{ratio:.2f}x" for ratio in ratios)


def _most(rows: list[Any]) -> str:
    """How much better than these any policy could be, where that was computed."""
    if any("act_bound_s" not in row for row in rows):
        return ""
    most = ", ".join(f"{row['act_mean_s'] / row['act_bound_s']:.2f}x" for row in rows)
    return f" (no policy can be more than {most} faster)"


def _cores_needed(by: dict[tuple[int, str], Any], label: str, peers: tuple[str, ...]) -> Row:
    pods = min((by[1024, peer] for peer in peers), key=lambda r: r["step_s"])
    enough = min(
        r["cores"] for (_, p), r in by.items() if p == "elastic" and r["step_s"] <= pods["step_s"]
    )
    return Row(
        f"Simulated coding agents: **{enough}** cores make a step as fast as 1024 in {label} "
        f"({pods['step_s']:.0f} s; no schedule is below {pods['critical_path_s']:.0f} s)",
        at_most(100 * enough / 1024, 10, " % of them"),
    )


def mopd(figures: Any) -> Iterator[Row]:
    for r in figures:
        if r["policy"] == "elastic" and r["gpus"]:
            share, bound = 100 * r["gpus"] / STATIC_GPUS, r.get("bound_gpus")
            most = "" if bound is None else f" (at least {bound / STATIC_GPUS:.1%} are needed)"
            yield Row(
                f"Simulated teachers, each busy {r['duty']:.1%} of the time on GPUs of its own: "
                f"**{share:.1f} %** of those GPUs are enough for calls to take no longer{most}",
                at_most(share, 29, " % (the paper)"),
            )


def day(figures: Any) -> Iterator[Row]:
    yield Row(
        f"A simulated day of {figures['actions']:,} actions on 1,280 cores takes "
        f"**{figures['cpu_s'] / 60:.1f} minutes** of one core and "
        f"**{figures['peak_memory_mb']:.0f} MB**",
        Goal("minutes, bounded memory", figures["cpu_s"] < 600),
    )


def scheduler(figures: Any) -> Iterator[Row]:
    for cycle in figures["cycles"]:
        if cycle["policy"] == "elastic":
            yield from _cycle(cycle["us_by_waiting"], f"{cycle['elastic_share']:.0%} elastic")
    for burst in figures["bursts"]:
        if burst["policy"] == "elastic":
            yield Row(
                f"A burst of 2,048 actions, {burst['elastic_share']:.0%} elastic, onto 1,024 idle "
                f"cores is decided in **{burst['decide_ms']:.1f} ms** of CPU",
                at_most(burst["decide_ms"], 5, " ms"),
            )
    if figures["ray_us"]:
        ours = min(figures["ours_us"])
        for peer, least in (("ray", 20), ("dask", 50)):
            ratio = min(figures[f"{peer}_us"]) / ours
            yield Row(
                f"Deciding on an action and sending it to a process ({ours:.0f} us) is "
                f"**{ratio:.0f}x** faster than a no-op task of {peer.capitalize()}",
                at_least(ratio, least),
            )


def _cycle(us: dict[str, float], kinds: str) -> Iterator[Row]:
    told = " / ".join(f"{us[waiting]:.0f}" for waiting in ("1000", "10000", "100000"))
    yield Row(
        f"An action, {kinds}, costs the scheduler **{told} us** of CPU from submission to report "
        "while 1k / 10k / 100k wait",
        at_most(us["100000"], 100, " us at 100k"),
    )
    growth = us["100000"] / us["1000"]
    yield Row(
        f"That is **{growth:.1f}x** as much while 100k wait as while 1k do ({kinds})",
        at_most(growth, 3),
    )


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "lab": lab,
    "coding": coding,
    "timeouts": timeouts,
    "mopd": mopd,
    "day": day,
    "scheduler": scheduler,
}
