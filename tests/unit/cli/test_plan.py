"""`artangram plan` names the smallest size that meets its goals; the next smaller one misses."""

from pathlib import Path

import pytest

from artangram.core.ids import Resource
from artangram.sim.sizing import SizeResult, Sweep, impossible, searched, smallest

SWEEP = ["--sweep", "cpu.cores=2..64"]


@pytest.fixture
def day(run, tmp_path: Path, cluster: Path) -> Path:
    path = tmp_path / "day.jsonl.gz"
    made = run(
        *("trace", "generate", path, "--family", "lab", "--set", "n=60", "--set", "cores=8"),
        *("--cluster", tmp_path / "wide.yaml", "--size", "cores=64"),
    )
    assert made.code == 0, made.err
    return path


def test_the_smallest_is_enough_and_the_next_smaller_is_not(run, day: Path, tmp_path: Path):
    reach = ["--cluster", tmp_path / "wide.yaml", "--trace", day, "--estimates", "exact"]
    ample = run("simulate", *reach, "--json", "-").json["act"]["mean_s"]
    goal = ["--slo", f"act<{1.5 * ample}", "--price", "cpu=1"]
    picture = tmp_path / "plan.svg"
    policies = ["--policy", "elastic", "--policy", "pods:1"]
    told = run("plan", *reach, *SWEEP, *goal, *policies, "--plot", picture, "--json", "-")
    assert told.code == 0, told.err
    elastic, pods = told.json["policies"]
    best = elastic["smallest"]
    assert best is not None
    tried = {one["size"]: one for one in elastic["sizes"]}
    assert tried[best]["act_s"] < 1.5 * ample
    assert best == 2 or tried[best - 1]["act_s"] >= 1.5 * ample
    assert told.json["act_bound_s"] <= tried[best]["act_s"]
    assert pods["smallest"] is None or pods["smallest"] >= best
    assert all(one["cost"] > 0 for one in elastic["sizes"] if one["act_s"])
    assert f"cpu.cores = {best}" in told.err
    assert picture.read_text().startswith("<?xml")
    never = run("plan", *reach, *SWEEP, "--slo", "act<0.0001")
    assert "no size up to 64 is enough" in never.out


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--sweep", "cpu.cores", "sweep: 'cpu.cores' is not a range of sizes"),
        ("--sweep", "cpu.cores=8..2", "sweep: 'cpu.cores=8..2' has no sizes"),
        ("--sweep", "gpu.devices=1..2", "sweep: the cluster has no pool 'gpu'"),
        ("--sweep", "cpu.speed=1..2", "sweep: cpu has no whole number 'speed'"),
        ("--slo", "steps<3", "slo: 'steps<3' is not a goal"),
        ("--slo", "step<0", "slo: 'step<0' has no limit in seconds"),
        ("--price", "cpu", "price: 'cpu' has no amount"),
    ],
)
def test_what_is_misspelt_is_said(run, cluster, trace, option: str, text: str, said: str):
    given = {"--sweep": "cpu.cores=2..4", "--slo": "act<5", option: text}
    options = [word for pair in given.items() for word in pair]
    told = run("plan", "--cluster", cluster, "--trace", trace, *options)
    assert told.code == 2
    assert told.err.startswith(f"error: {said}")


@pytest.mark.parametrize("enough", [1, 2, 3, 7, 64, 100, 101])
def test_the_search_ends_beside_the_answer(enough: int):
    tried: list[int] = []

    def simulate(size: int) -> SizeResult:
        tried.append(size)
        found = impossible("p", size, "too small")
        return (
            found
            if size < enough
            else SizeResult(
                policy="p", size=size, step_s=1.0, act_s=1.0, p99_s=1.0, cost=0.0, meets=True
            )
        )

    results = searched(simulate, Sweep(pool=Resource("cpu"), field="cores", low=1, high=100))
    best = smallest(results)
    if enough > 100:
        assert best is None
    else:
        assert best is not None
        assert best.size == enough
        assert enough == 1 or enough - 1 in tried
    assert len(tried) == len(set(tried)) <= 15
