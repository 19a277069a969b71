"""The rows of the results table that say what the scheduler decides, and at what cost."""

from collections.abc import Callable, Iterator
from typing import Any

from row import Row


def lab(figures: Any) -> Iterator[Row]:
    by = {(r["policy"], r["estimates"], r["squeeze_penalty"]): r for r in figures}
    ours, noisy = by["elastic", "exact", 0.1], by["elastic", "noisy:1.0", 0.1]
    yield Row(
        "Simulated: mean ACT over the Lagrangian bound, 15 traces, 10 % squeeze penalty; the same "
        "with wrong estimates",
        f"{ours['ratio']:.2f}x; {noisy['ratio']:.2f}x",
        "1.12x; 1.18x",
        is_headline=True,
    )
    free, noisy_free = by["elastic", "exact", 0.0], by["elastic", "noisy:1.0", 0.0]
    yield Row(
        "Simulated: the same without the penalty",
        f"{free['ratio']:.2f}x; {noisy_free['ratio']:.2f}x",
        "1.04x; 1.08x",
    )
    for peer, label, goal in (
        ("tangram", "ARL-Tangram's algorithm", "1.8x"),
        ("fixed:4", "4 cores each", "2.5x"),
        ("overcommit", "the kernel shares", ""),
    ):
        yield Row(
            f"Simulated: mean ACT against `{peer}` ({label}), same traces",
            f"{by[peer, 'exact', 0.1]['ratio'] / ours['ratio']:.2f}x better",
            goal,
            is_headline=peer == "tangram",
        )


def coding(figures: Any) -> Iterator[Row]:
    by = {(r["cores"], r["policy"]): r for r in figures}

    def gain(peer: str, cores: int) -> str:
        return f"{by[cores, peer]['act_mean_s'] / by[cores, 'elastic']['act_mean_s']:.2f}x"

    sizes = (256, 192, 128, 96)
    for peer, label, goal in (
        ("pods:1", "a reserved core for each trajectory", "6x on 256"),
        ("pods:0.5/4", "pods with request 0.5 and limit 4", ""),
        ("tangram", "ARL-Tangram's algorithm", "1.3x on 128-256"),
        ("overcommit", "no reservation, the kernel shares", "1.25x where cores are scarce"),
    ):
        yield Row(
            f"Simulated coding agents: mean ACT against `{peer}` ({label}) on {_list(sizes)} cores",
            ", ".join(gain(peer, cores) for cores in sizes) + " better",
            goal,
            is_headline=True,
        )
    yield _cores_needed(by)


def _cores_needed(by: dict[tuple[int, str], Any]) -> Row:
    pods = min((by[1024, p] for p in ("pods:1", "pods:2")), key=lambda r: r["step_s"])
    enough = min(
        r["cores"] for (_, p), r in by.items() if p == "elastic" and r["step_s"] <= pods["step_s"]
    )
    return Row(
        f"Simulated coding agents: cores for the step time of 1024 cores under `{pods['policy']}` "
        f"({pods['step_s']:.0f} s; critical path {pods['critical_path_s']:.0f} s)",
        f"{enough} ({enough / 1024:.1%})",
        "8-10 %",
        is_headline=True,
    )


def mopd(figures: Any) -> Iterator[Row]:
    found = [r for r in figures if r["policy"] == "elastic" and r["gpus"]]
    points = ", ".join(f"{r['gpus'] / 40:.1%} at {r['duty']:.1%}" for r in found)
    yield Row(
        "Simulated: GPUs for the mean ACT of ten static teachers on 40, by the duty of those "
        "([picture](docs/images/mopd.svg))",
        points,
        "29 % (the paper)",
        is_headline=True,
    )


def day(figures: Any) -> Iterator[Row]:
    yield Row(
        f"A simulated day of {figures['actions']:,} actions on 1,280 cores, nothing known of them",
        f"{figures['cpu_s'] / 60:.1f} minutes of one core, {figures['peak_memory_mb']:.0f} MB",
        "minutes, bounded memory",
    )


def scheduler(figures: Any) -> Iterator[Row]:
    for cycle in figures["cycles"]:
        if cycle["policy"] == "elastic":
            us = cycle["us_by_waiting"]
            yield Row(
                f"CPU of a whole action life in the scheduler, {cycle['elastic_share']:.0%} "
                "elastic, at 1k / 10k / 100k waiting",
                f"{us['1000']:.0f} / {us['10000']:.0f} / {us['100000']:.0f} us",
                "100 us, growth 3x",
                is_headline=cycle["elastic_share"] < 1,
            )
    burst = figures["bursts"][0]
    yield Row(
        "CPU to decide a burst of 2,048 actions onto 1,024 idle cores",
        f"{burst['decide_ms']:.1f} ms ({burst['whole_ms']:.1f} ms with taking them in)",
        "5 ms",
    )
    if figures["ray_us"]:
        ours = min(figures["ours_us"])
        ray, dask = min(figures["ray_us"]), min(figures["dask_us"])
        yield Row(
            "No-op actions through two worker processes, beside Ray and Dask tasks",
            f"{ours:.0f} us; Ray {ray / ours:.0f}x, Dask {dask / ours:.0f}x that",
            "Ray 20x, Dask 50x",
            is_headline=True,
        )


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in numbers)


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "lab": lab,
    "coding": coding,
    "mopd": mopd,
    "day": day,
    "scheduler": scheduler,
}
