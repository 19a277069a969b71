"""What does a test suite lose per core when it has more workers than cores?

Claim: a suite that keeps its workers loses some of its speed when it is squeezed below them, and
every test takes longer by the number of workers per core; one that follows its cores loses neither.

Each run starts on two cores and is squeezed to one when a third of its tests are over, except the
references, which have one worker on one core all along. Speed is tests per second of CPU time that
the whole process tree got, so that other load on the machine cancels out. The penalty is what is
missing compared with the reference of the same tool. Runs are interleaved in random order.
Also: the cost of a small suite and the speed-up on two cores, against pytest and pytest-xdist.

    python benchmarks/experiments/squeeze_penalty.py --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from artangram.envs.elastictest import command
from artangram.sandbox.namespace.cores import AffinityCores, threads_below

CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
NUM_TESTS = 180
SETTLE_S = 0.3
TAIL = 8
"""The last tests are left out: a worker may already be idle."""
ENVIRON = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}

HEAD = f"""
import array, os, time, pytest
log = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND)
@pytest.fixture(autouse=True)
def logged():
    wall, cpu = time.monotonic(), time.process_time()
    yield
    row = (wall, time.monotonic(), time.process_time() - cpu)
    os.write(log, ("%f %f %f\\n" % row).encode())
cases = pytest.mark.parametrize("n", range({NUM_TESTS}))
"""
SUITES = {
    "arithmetic": """
@cases
def test_a(n):
    total = 0
    for number in range(250_000): total += number * number
""",
    # Twice a core's second cache: what a worker loses when another one runs in between.
    "memory": """
data = array.array("q", range(1 << 18))
@cases
def test_a(n):
    for start in range(7):
        sum(data[start::7]); data.reverse()
""",
}
TRIVIAL = """
import pytest
@pytest.mark.parametrize("n", range({num}))
def test_a(n): pass
"""


class Kind(NamedTuple):
    """One way to run a suite."""

    tool: str
    workers: int
    squeezed: bool

    @property
    def name(self) -> str:
        return f"{self.tool} x{self.workers}{' squeezed' if self.squeezed else ''}"

    def argv(self) -> list[str]:
        if self.tool == "elastic":
            return command(["-q", "-p", "no:cacheprovider"], python=sys.executable)
        return xdist(self.workers)


KINDS = (
    Kind("xdist", 1, False),
    Kind("xdist", 2, True),
    Kind("xdist", 4, True),
    Kind("elastic", 1, False),
    Kind("elastic", 2, True),
    Kind("elastic", 4, True),
)


def xdist(workers: int) -> list[str]:
    plugin = ["-p", "xdist.plugin", "-p", "no:cacheprovider", "-n", str(workers)]
    return [sys.executable, "-m", "pytest", "-q", *plugin]


class Timing(NamedTuple):
    """One test: when it ran, and the CPU time it took."""

    begin: float
    end: float
    cpu_s: float


def read_log(path: Path) -> list[Timing]:
    return [Timing(*map(float, line.split())) for line in path.read_text().splitlines()]


def tree_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process tree that are alive."""
    total = 0
    for tid in threads_below(pid):
        try:
            total += int(Path(f"/proc/{tid}/schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9


def started(argv: list[str], home: Path, *, units: int) -> subprocess.Popen[bytes]:
    (home / "log").write_text("")
    environ = {**ENVIRON, "LOG": str(home / "log"), "ARTANGRAM_UNITS": str(units)}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(argv, cwd=home, env=environ, stdin=quiet, stdout=quiet, stderr=quiet)


def until_logged(home: Path, number: int, process: subprocess.Popen[bytes]) -> None:
    while len((home / "log").read_bytes().splitlines()) < number:
        if process.poll() is not None:
            raise RuntimeError(f"the suite ended with {process.returncode}, too early")
        time.sleep(0.005)


def squeeze_run(kind: Kind, home: Path) -> dict[str, float]:
    """Efficiency of one run in its squeezed part."""
    process = started(kind.argv(), home, units=kind.workers)
    hold = AffinityCores().lend(None, process.pid, cores=CORES if kind.squeezed else CORES[:1])
    until_logged(home, NUM_TESTS // 3, process)
    hold.resize(CORES[:1])
    time.sleep(SETTLE_S)
    before, begin, done = tree_cpu_s(process.pid), time.monotonic(), read_log(home / "log")
    until_logged(home, NUM_TESTS - TAIL, process)
    after, end, log = tree_cpu_s(process.pid), time.monotonic(), read_log(home / "log")
    if process.wait(timeout=60):
        raise RuntimeError(f"{kind.name} failed")
    part = log[len(done) :]
    inside = [t for t in part if t.begin >= begin]
    return {
        "tests": len(part),
        "wall_s": end - begin,
        "cpu_s": after - before,
        "tests_per_cpu_s": len(part) / (after - before),
        "test_cpu_s": statistics.fmean(t.cpu_s for t in inside),
        "test_wall_per_cpu": sum(t.end - t.begin for t in inside) / sum(t.cpu_s for t in inside),
        "running_at_once": sum(t.end - t.begin for t in inside) / (end - begin),
    }


def whole_run(argv: list[str], home: Path, *, units: int, cores: int) -> dict[str, float]:
    """Wall and CPU time of a whole run, and how many tests ran at once on average."""
    begin, used = time.monotonic(), os.times()
    process = started(argv, home, units=units)
    AffinityCores().lend(None, process.pid, cores=CORES[:cores])
    if process.wait(timeout=120):
        raise RuntimeError(f"{argv} failed")
    now = os.times()
    cpu_s = now.children_user + now.children_system - used.children_user - used.children_system
    row = {"wall_s": time.monotonic() - begin, "cpu_s": cpu_s}
    log = read_log(home / "log")
    if log:
        row["tests_s"] = max(t.end for t in log) - min(t.begin for t in log)
        row["running_at_once"] = sum(t.end - t.begin for t in log) / row["tests_s"]
        row["test_cpu_s"] = sum(t.cpu_s for t in log)
        row["cores_used"] = row["test_cpu_s"] / row["tests_s"]
    return row


def jobs(home: Path) -> Iterator[tuple[str, str, str, Any]]:
    """All runs of one round: section, suite, name, and how to do it."""
    for suite in SUITES:
        place = home / suite
        for kind in KINDS:
            yield "squeeze", suite, kind.name, lambda k=kind, p=place: squeeze_run(k, p)
    elastic = KINDS[-1].argv()
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tools = [("pytest", pytest, 1), ("elastic x1", elastic, 1), ("elastic x2", elastic, 2)]
    tools += [("xdist x1", xdist(1), 1), ("xdist x2", xdist(2), 2)]
    for section, suite, names in (
        ("overhead", "trivial50", None),
        ("overhead", "trivial1000", None),
        ("speedup", "arithmetic", ("elastic x1", "elastic x2", "xdist x1", "xdist x2")),
    ):
        for name, argv, cores in tools:
            if names is None or name in names:
                run = lambda a=argv, c=cores, p=home / suite: whole_run(a, p, units=c, cores=c)  # noqa: E731
                yield section, suite, name, run


def summary(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, the penalties of each pair of the same round, and the speed-ups."""
    out: dict[str, Any] = {}
    for row in samples:
        key = f"{row['section']}/{row['suite']}/{row['name']}"
        for field in ("tests_per_cpu_s", "test_wall_per_cpu", "running_at_once", "cpu_s", "wall_s"):
            if field in row:
                out.setdefault(key, {}).setdefault(field, []).append(row[field])
    table = {k: {f: statistics.median(v) for f, v in fields.items()} for k, fields in out.items()}
    return {"median": table, "squeeze_penalty": penalties(samples), "speedup": speedups(samples)}


def by_round(samples: list[dict[str, Any]], section: str, field: str) -> dict[tuple, float]:
    return {
        (row["round"], row["suite"], row["name"]): row[field]
        for row in samples
        if row["section"] == section and field in row
    }


def penalties(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    speed = by_round(samples, "squeeze", "tests_per_cpu_s")
    found: dict[str, list[float]] = {}
    for (number, suite, name), value in speed.items():
        if name.endswith("squeezed"):
            reference = speed[(number, suite, f"{name.split()[0]} x1")]
            found.setdefault(f"{suite}/{name}", []).append(1 - value / reference)
    return {name: spread(values) for name, values in found.items()}


def speedups(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for field, label in (("tests_s", "wall"), ("cores_used", "cores used")):
        values = by_round(samples, "speedup", field)
        for tool in ("elastic", "xdist"):
            pairs = [
                (value, values[(number, suite, f"{tool} x2")])
                for (number, suite, name), value in values.items()
                if name == f"{tool} x1"
            ]
            ratios = [b / a if field == "cores_used" else a / b for a, b in pairs]
            found[f"{tool}, by {label}"] = spread(ratios)
    return found


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "low": round(min(values), 4),
        "high": round(max(values), 4),
    }


def commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/...")
    asked = parser.parse_args()
    if len(CORES) < 2:
        raise SystemExit("two cores are needed: one to be taken away")
    samples: list[dict[str, Any]] = []
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for suite, code in SUITES.items():
            write_suite(home / suite, HEAD + code)
        for num in (50, 1000):
            write_suite(home / f"trivial{num}", TRIVIAL.format(num=num))
        for number in range(asked.rounds):
            todo = list(jobs(home))
            rng.shuffle(todo)
            for section, suite, kind, run in todo:
                label = {"round": number, "section": section, "suite": suite, "name": kind}
                samples.append(label | run() | {"load": os.getloadavg()[0]})
    result = {
        "question": "what does a suite lose per core when it has more workers than cores?",
        "date": datetime.now(tz=UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "seed": asked.seed,
        "rounds": asked.rounds,
        "summary": summary(samples),
        "samples": samples,
    }
    name = f"{result['date']}_{result['commit']}_squeeze_penalty_{os.cpu_count()}cpu.json"
    out = asked.out or Path(__file__).parents[1] / "results" / name
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1))


def write_suite(home: Path, code: str) -> None:
    home.mkdir()
    (home / "pytest.ini").write_text("[pytest]\n")
    (home / "test_a.py").write_text(code)


if __name__ == "__main__":
    main()
