"""What does a test suite lose per core when it has more workers than cores?

Claim: workers that share a core lose a few percent of their speed and take turns, so that every
test takes longer by their number; a suite that follows its cores does neither.

Three sections, each compared within one run, because the machine's speed drifts with other load:
- squeeze: the workers of pytest-xdist share one core; every other phase all but one are stopped.
  The penalty is the CPU time per test of that one when alone, compared with when sharing.
- resize: a run has two cores and one core in turns. How many cores the workers ran on or waited
  for, tests per second of CPU time, and their product on two cores compared with one: the speed-up
  to expect on otherwise idle cores. The penalty is what tests per second of CPU time lose
  on one core. The wall ratio beside it holds for a shared machine
  only. How long after a shrink two tests still ran at once, how many ran at once after that.
- overhead: CPU time of whole runs of small suites, interleaved.

    python benchmarks/experiments/squeeze_penalty.py --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from artangram.envs.elastictest import command
from artangram.sandbox.namespace.cores import AffinityCores, threads_below

CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
PHASE_S = 0.7
NUM_PHASES = 24
SETTLED_S = 0.35
"""How long after a resize a phase counts as settled."""
BOOTSTRAPS = 2000
ENVIRON = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}

# More tests than any run gets through: it is ended when the phases are over.
HEAD = """
import array, os, time, pytest
log = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND)
@pytest.fixture(autouse=True)
def logged():
    wall, cpu = time.monotonic(), time.process_time()
    yield
    row = (os.getpid(), wall, time.monotonic(), time.process_time() - cpu)
    os.write(log, ("%d %f %f %f\\n" % row).encode())
cases = pytest.mark.parametrize("n", range(20_000))
"""
SUITES = {
    "arithmetic": """
@cases
def test_a(n):
    total = 0
    for number in range(80_000): total += number * number
""",
    # Two megabytes, more than a core's own caches hold of two such workers.
    "memory": """
data = array.array("q", range(1 << 18))
@cases
def test_a(n):
    for start in range(3):
        sum(data[start::7]); data.reverse()
""",
}
TRIVIAL = """
import pytest
@pytest.mark.parametrize("n", range({num}))
def test_a(n): pass
"""

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
ELASTIC = command(["-q", "-p", "no:cacheprovider"], python=sys.executable)


def xdist(workers: int) -> list[str]:
    return [*PYTEST, "-p", "xdist.plugin", "-n", str(workers)]


class Timing(NamedTuple):
    """One test: its worker, when it ran, and the CPU time it took."""

    pid: int
    begin: float
    end: float
    cpu_s: float


class Suite:
    """A running suite whose tests are logged."""

    def __init__(self, argv: list[str], home: Path, *, units: int, cores: int) -> None:
        self._log = home / "log"
        self._log.write_text("")
        environ = {**ENVIRON, "LOG": str(self._log), "ARTANGRAM_UNITS": str(units)}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            argv, cwd=home, env=environ, stdin=quiet, stdout=quiet, stderr=quiet
        )
        self.hold = AffinityCores().lend(None, self.process.pid, cores=CORES[:cores])

    def timings(self) -> list[Timing]:
        rows = (line.split() for line in self._log.read_text().splitlines())
        return [Timing(int(p), float(b), float(e), float(c)) for p, b, e, c in rows]

    def pids(self, number: int) -> list[int]:
        """The workers, once that many have run something."""
        while True:
            assert self.process.poll() is None, "the suite ended too early"
            pids = sorted({t.pid for t in self.timings()})
            if len(pids) >= number:
                return pids
            time.sleep(0.05)

    def end(self, pids: list[int]) -> None:
        self.process.kill()
        self.process.wait(timeout=10)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def squeeze(home: Path, *, workers: int) -> dict[str, Any]:
    """One worker sharing its core with the others, and alone on it, in turns."""
    suite = Suite(xdist(workers), home, units=workers, cores=1)
    pids = suite.pids(workers)
    survivor, others = pids[0], pids[1:]
    try:
        marks = []
        for phase in range(NUM_PHASES):
            for pid in others:
                os.kill(pid, signal.SIGSTOP if phase % 2 else signal.SIGCONT)
            marks.append(time.monotonic())
            time.sleep(PHASE_S)
        marks.append(time.monotonic())
        timings = [t for t in suite.timings() if t.pid == survivor]
    finally:
        suite.end(pids)
    means = [fmean_of(timings, begin, end) for begin, end in pairwise(marks)]
    pairs = [
        (shared, alone)
        for shared, alone in zip(means[::2], means[1::2], strict=True)
        if shared and alone
    ]
    return {
        "penalty_pairs": [1 - alone[0] / shared[0] for shared, alone in pairs],
        "slower_pairs": [(s[1] / s[0]) / (a[1] / a[0]) for s, a in pairs],
    }


def fmean_of(timings: list[Timing], begin: float, end: float) -> tuple[float, float] | None:
    """CPU and wall time per test, over the tests whose middle lies in an interval."""
    inside = [t for t in timings if begin < (t.begin + t.end) / 2 < end]
    if not inside:
        return None
    cpu_s = statistics.fmean(t.cpu_s for t in inside)
    return cpu_s, statistics.fmean(t.end - t.begin for t in inside)


class Use(NamedTuple):
    """CPU time of a whole process tree, and the time its workers ran or waited for a core."""

    cpu_s: float
    wanted_s: float


def use_of(root: int, workers: list[int]) -> Use:
    cpu_ns = wanted_ns = 0
    for tid in threads_below(root):
        try:
            ran, waited, _ = map(int, Path(f"/proc/{tid}/schedstat").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu_ns += ran
        wanted_ns += ran + waited if tid in workers else 0
    return Use(cpu_ns / 1e9, wanted_ns / 1e9)


def resize(argv: list[str], home: Path) -> dict[str, Any]:
    """Two cores and one core in turns."""
    suite = Suite(argv, home, units=2, cores=2)
    pids = suite.pids(2)
    phases, settled, uses = [], [], []
    try:
        for phase in range(NUM_PHASES):
            suite.hold.resize(CORES[: 1 if phase % 2 else 2])
            begin = time.monotonic()
            time.sleep(SETTLED_S)
            calm, before = time.monotonic(), use_of(suite.process.pid, pids)
            time.sleep(PHASE_S - SETTLED_S)
            end, after = time.monotonic(), use_of(suite.process.pid, pids)
            phases.append((begin, end))
            settled.append((calm, end))
            uses.append(Use(after.cpu_s - before.cpu_s, after.wanted_s - before.wanted_s))
        timings = suite.timings()
    finally:
        suite.end(pids)
    counts = [sum(b < t.end < e for t in timings) for b, e in settled]
    rates = [n / (e - b) for n, (b, e) in zip(counts, settled, strict=True)]
    per_cpu = [n / u.cpu_s for n, u in zip(counts, uses, strict=True)]
    wanted = [u.wanted_s / (e - b) for u, (b, e) in zip(uses, settled, strict=True)]
    # A run that asks for more cores than there are gets all of them.
    usable = [min(w, 1 if phase % 2 else 2) for phase, w in enumerate(wanted)]
    useful = [w * p for w, p in zip(usable, per_cpu, strict=True)]
    return {
        "expected_speedup_pairs": ratios(useful),
        "penalty_pairs": [1 - 1 / ratio for ratio in ratios(per_cpu)],
        "wall_pairs": ratios(rates),
        "wanted_on_two": wanted[::2],
        "wanted_on_one": wanted[1::2],
        "late_s": [shared_until(timings, *phase) for phase in phases[1::2]],
        "at_once": [at_once(timings, *phase) for phase in settled[1::2]],
    }


def ratios(values: list[float]) -> list[float]:
    """Each phase on two cores compared with the one on one core that follows it."""
    return [two / one for two, one in zip(values[::2], values[1::2], strict=True) if one]


def shared_until(timings: list[Timing], begin: float, end: float) -> float:
    """How long after `begin` two tests ran at the same time for the last time in the phase."""
    spans = sorted((t.begin, t.end) for t in timings if t.end > begin and t.begin < end)
    last = begin
    for index, (first, until) in enumerate(spans):
        for other_first, other_until in spans[index + 1 :]:
            if other_first >= until:
                break
            last = max(last, min(until, other_until, end))
        last = max(last, first if first < begin else last)
    return last - begin


def at_once(timings: list[Timing], begin: float, end: float) -> float:
    """How many tests ran at the same time, on average over an interval."""
    overlap = (min(t.end, end) - max(t.begin, begin) for t in timings)
    return sum(x for x in overlap if x > 0) / (end - begin)


def overhead(argv: list[str], home: Path, *, units: int) -> dict[str, Any]:
    """CPU time of a whole run."""
    begin = os.times()
    suite = Suite(argv, home, units=units, cores=units)
    assert suite.process.wait(timeout=120) == 0
    end = os.times()
    used = end.children_user - begin.children_user + end.children_system - begin.children_system
    return {"cpu_s": [used]}


def jobs(home: Path) -> list[tuple[str, Any]]:
    """All runs of one round: a name, and how to do it."""
    todo: list[tuple[str, Any]] = []
    for suite in SUITES:
        place = home / suite
        for workers in (2, 4):
            name = f"squeeze/{suite}/xdist x{workers}"
            todo.append((name, lambda p=place, w=workers: squeeze(p, workers=w)))
        for tool, argv in (("elastic", ELASTIC), ("xdist", xdist(2))):
            todo.append((f"resize/{suite}/{tool} x2", lambda p=place, a=argv: resize(a, p)))
    tools = (("pytest", PYTEST, 1), ("elastic x1", ELASTIC, 1), ("elastic x2", ELASTIC, 2))
    for suite in ("trivial50", "trivial1000"):
        for tool, argv, units in (*tools, ("xdist x2", xdist(2), 2)):
            run = lambda p=home / suite, a=argv, u=units: overhead(a, p, units=u)  # noqa: E731
            todo += [(f"overhead/{suite}/{tool}", run)] * 3
    return todo


def summary(samples: list[dict[str, Any]], rng: random.Random) -> dict[str, Any]:
    """The median of each figure over all rounds, with the 95 % interval of that median."""
    values: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        for figure, found in sample["figures"].items():
            values.setdefault(sample["name"], {}).setdefault(figure, []).extend(found)
    return {
        name: {figure: interval(found, rng) for figure, found in sorted(figures.items())}
        for name, figures in sorted(values.items())
    }


def interval(values: list[float], rng: random.Random) -> dict[str, float]:
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(BOOTSTRAPS)
    )
    return {
        "median": round(statistics.median(values), 4),
        "low": round(medians[int(0.025 * BOOTSTRAPS)], 4),
        "high": round(medians[int(0.975 * BOOTSTRAPS)], 4),
        "samples": len(values),
    }


def measure(rounds: int, rng: random.Random) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for suite, code in SUITES.items():
            write_suite(home / suite, HEAD + code)
        for num in (50, 1000):
            write_suite(home / f"trivial{num}", TRIVIAL.format(num=num))
        for number in range(rounds):
            todo = jobs(home)
            rng.shuffle(todo)
            for kind, run in todo:
                figures, load = run(), round(os.getloadavg()[0], 2)
                rounded = {k: [round(x, 4) for x in v] for k, v in figures.items()}
                samples.append({"round": number, "name": kind, "load": load, "figures": rounded})
    return samples


def write_suite(home: Path, code: str) -> None:
    home.mkdir()
    (home / "pytest.ini").write_text("[pytest]\n")
    (home / "test_a.py").write_text(code)


def commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/...")
    asked = parser.parse_args()
    if len(CORES) < 2:
        raise SystemExit("two cores are needed: one to be taken away")
    rng = random.Random(asked.seed)
    measured = commit()  # others may commit while it runs
    samples = measure(asked.rounds, rng)
    result = {
        "question": __doc__.splitlines()[0],
        "date": datetime.now(tz=UTC).strftime("%Y-%m-%d"),
        "commit": measured,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "seed": asked.seed,
        "rounds": asked.rounds,
        "summary": summary(samples, rng),
        "samples": samples,
    }
    name = f"{result['date']}_{result['commit']}_squeeze_penalty_{os.cpu_count()}cpu.json"
    out = asked.out or Path(__file__).parents[1] / "results" / name
    out.write_text(json.dumps(result) + "\n")
    for kind, figures in result["summary"].items():
        print(kind, json.dumps(figures))


if __name__ == "__main__":
    main()
