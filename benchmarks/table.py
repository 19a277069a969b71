"""Write the results tables from the result files beside this script.

Every figure is computed here from a file of `results`, so none can be typed in. The whole table is
in `docs/results.md`, its headlines are in the README; a test compares both with what this makes.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # It runs as a script, and tests run it by its path.

import livetable  # noqa: E402

README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "results.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

Row = tuple[str, str]


def main() -> None:
    for path, chosen in ((README, HEADLINES), (PAGE, None)):
        text = path.read_text(encoding="utf-8")
        path.write_text(with_table(text, chosen), encoding="utf-8")


def with_table(text: str, chosen: "Chosen | None") -> str:
    """`text` with the table between its marks made anew, of the `chosen` rows or of all."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{table(chosen)}\n{END}", text)


def table(chosen: "Chosen | None") -> str:
    lines = ["| question | figure | file and command |", "|---|---|---|"]
    root = "" if chosen is not None else "../"
    for name, rows in ROWS.items():
        if chosen is not None and name not in chosen:
            continue
        path = HERE / "results" / f"{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        command = livetable.COMMANDS.get(name, f"artangram bench {name}")
        source = f"[{name}.json]({root}benchmarks/results/{name}.json), `{command}`"
        for number, (question, figure) in enumerate(rows(result["figures"])):
            if chosen is not None and number not in chosen[name]:
                continue
            question = question.replace("](docs/", f"]({root}docs/")
            lines.append(f"| {question} | {figure} | {source} |")
            source = "same"
    return "\n".join(lines)


def lab(figures: Any) -> Iterator[Row]:
    by = {(r["policy"], r["estimates"], r["squeeze_penalty"]): r for r in figures}
    ours, noisy = by["elastic", "exact", 0.1], by["elastic", "noisy:1.0", 0.1]
    yield (
        "How close is mean ACT to the Lagrangian bound of fixed sizes? 15 open-loop traces, 10 % "
        "squeeze penalty",
        f"{ours['ratio']:.2f}x; {noisy['ratio']:.2f}x with estimates off by a lognormal factor of "
        "sigma 1 and wrong speed-ups",
    )
    free, noisy_free = by["elastic", "exact", 0.0], by["elastic", "noisy:1.0", 0.0]
    yield "Without the penalty", f"{free['ratio']:.2f}x; {noisy_free['ratio']:.2f}x"
    for peer, label in (
        ("tangram", "ARL-Tangram's algorithm"),
        ("fixed:4", "4 cores each"),
        ("overcommit", "the kernel shares"),
    ):
        ratio = by[peer, "exact", 0.1]["ratio"] / ours["ratio"]
        yield f"Against `{peer}` ({label}), same traces", f"{ratio:.2f}x better"


def coding(figures: Any) -> Iterator[Row]:
    by = {(r["cores"], r["policy"]): r for r in figures}

    def gain(peer: str, cores: int) -> str:
        return f"{by[cores, peer]['act_mean_s'] / by[cores, 'elastic']['act_mean_s']:.2f}x"

    sizes = (256, 192, 128, 96)
    for peer, label in (
        ("pods:1", "a reserved core for each trajectory"),
        ("pods:0.5/4", "pods with request 0.5 and limit 4"),
        ("tangram", "ARL-Tangram's algorithm"),
        ("overcommit", "no reservation, the kernel shares"),
    ):
        yield (
            f"Mean ACT of coding agents against `{peer}` ({label}) on {_list(sizes)} cores",
            ", ".join(gain(peer, cores) for cores in sizes) + " better",
        )
    yield _cores_needed(by)


def _cores_needed(by: dict[tuple[int, str], Any]) -> Row:
    pods = min((by[1024, p] for p in ("pods:1", "pods:2")), key=lambda r: r["step_s"])
    enough = min(
        r["cores"] for (_, p), r in by.items() if p == "elastic" and r["step_s"] <= pods["step_s"]
    )
    return (
        f"Cores for the step time of 1024 cores under `{pods['policy']}` "
        f"({pods['step_s']:.0f} s; critical path {pods['critical_path_s']:.0f} s)",
        f"{enough} ({enough / 1024:.1%})",
    )


def mopd(figures: Any) -> Iterator[Row]:
    found = [r for r in figures if r["policy"] == "elastic" and r["gpus"]]
    points = ", ".join(f"{r['gpus'] / 40:.1%} at {r['duty']:.1%}" for r in found)
    yield (
        "GPUs for the mean ACT of ten static teachers on 40, by the duty of those "
        "([picture](docs/images/mopd.svg))",
        points,
    )


def day(figures: Any) -> Iterator[Row]:
    yield (
        f"A simulated day of {figures['actions']:,} actions on 1,280 cores, nothing known of them",
        f"{figures['cpu_s'] / 60:.1f} minutes of one core, {figures['peak_memory_mb']:.0f} MB",
    )


def scheduler(figures: Any) -> Iterator[Row]:
    for cycle in figures["cycles"]:
        if cycle["policy"] == "elastic":
            us = cycle["us_by_waiting"]
            yield (
                f"CPU of a whole action life, {cycle['elastic_share']:.0%} elastic, at 1k / 10k / "
                "100k waiting",
                f"{us['1000']:.0f} / {us['10000']:.0f} / {us['100000']:.0f} us",
            )
    burst = figures["bursts"][0]
    yield (
        "CPU to decide a burst of 2,048 actions onto 1,024 idle cores",
        f"{burst['decide_ms']:.1f} ms ({burst['whole_ms']:.1f} ms with taking them in)",
    )
    if figures["ray_us"]:
        ours = min(figures["ours_us"])
        ray, dask = min(figures["ray_us"]), min(figures["dask_us"])
        yield (
            "No-op actions through two worker processes, beside Ray and Dask tasks",
            f"{ours:.0f} us; Ray {ray / ours:.0f}x, Dask {dask / ours:.0f}x that",
        )


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in numbers)


ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "lab": lab,
    "coding": coding,
    "mopd": mopd,
    "day": day,
    "scheduler": scheduler,
    **livetable.ROWS,
}

Chosen = dict[str, tuple[int, ...]]

HEADLINES: Chosen = {
    "lab": (0, 2),
    "coding": (0, 1, 2, 3, 4),
    "mopd": (0,),
    "scheduler": (0, 3),
    "sandbox": (0, 1, 4, 10),
    "overhead": (1, 2),
    "services": (0, 1),
    "functions": (1,),
    "quota": (0,),
    "gateway": (1,),
    "vllm": (0,),
    "rollout": (0, 1),
    "learn": (0, 1, 2),
}
"""Rows of each file that the README shows, by their place."""

if __name__ == "__main__":
    main()
