"""`artangram simulate` and `artangram trace` keep the contract of docs/formats.md."""

import json
from pathlib import Path
from typing import Any

import pytest

ACT = {"mean_s", "p50_s", "p99_s", "max_s", "wait_mean_s", "overhead_mean_s", "run_mean_s"}
REPORT = {
    "policy",
    "trace",
    "estimates",
    "cluster",
    "actions",
    "act",
    "by_kind",
    "steps",
    "failed",
    "refused",
    "given_up",
    "utilisation",
    "lower_bound",
    "decision_us",
    "resizes",
    "restores",
    "simulated_s",
}
SMALL = {
    "coding": (["tasks=1", "batch=4", "steps=2"], ["cores=8"]),
    "deepsearch": (["batch=4", "steps=1"], ["gpus=8"]),
    "lab": (["n=40", "cores=8"], ["cores=8"]),
    "mixed": (
        ["steps=1", "coding_tasks=1", "coding_batch=2", "search_batch=2", "mopd_batch=4"],
        [],
    ),
    "mopd": (["batch=6", "steps=1"], ["gpus=16"]),
}


def without_timing(report: dict[str, Any]) -> dict[str, Any]:
    """All but the cost of deciding, which is this machine's and not the trace's."""
    return {key: value for key, value in report.items() if key != "decision_us"}


def test_json_report_has_exactly_the_documented_keys(run, cluster, trace):
    report = run("simulate", "--cluster", cluster, "--trace", trace, "--json", "-").json
    assert set(report) == REPORT
    assert set(report["act"]) == ACT
    assert set(report["by_kind"]) == {"tool", "test"}
    assert set(report["by_kind"]["tool"]) == ACT | {"count"}
    assert set(report["steps"][0]) == {"step", "job", "duration_s", "critical_path_s"}
    assert set(report["utilisation"]) == {"cpu"}
    assert set(report["lower_bound"]) == {"act_mean_s", "kind", "moldable_act_mean_s"}
    assert set(report["decision_us"]) == {"mean", "p99"}
    assert set(report["cluster"]["cpu"]) == {"kind", "nodes", "units"}


def test_report_holds_what_can_be_computed_by_hand(run, cluster, trace):
    report = run("simulate", "--cluster", cluster, "--trace", trace, "--json", "-").json
    # a: thinks 1 s, tool until 3 s, test on all 4 cores until 5 s; b: tool until 3 s.
    assert report["policy"] == "elastic"
    assert report["actions"] == 3
    assert report["act"]["mean_s"] == pytest.approx((2 + 2 + 3) / 3)
    assert report["act"]["wait_mean_s"] == 0
    assert report["steps"][0]["duration_s"] == pytest.approx(5)
    assert report["utilisation"]["cpu"] == pytest.approx((2 + 8 + 3) / (4 * 5))
    assert report["lower_bound"]["act_mean_s"] == pytest.approx(7 / 3)
    assert (report["failed"], report["refused"], report["restores"]) == (0, 0, 0)


def test_several_policies_are_reported_side_by_side(run, cluster, trace):
    names = ["pods:1", "overcommit", "fixed:2", "elastic"]
    options = [word for name in names for word in ("--policy", name)]
    said = run("simulate", "--cluster", cluster, "--trace", trace, *options, "--json", "-")
    assert [report["policy"] for report in said.json] == names
    assert len({report["lower_bound"]["act_mean_s"] for report in said.json}) == 1
    assert all(name in said.err for name in names), "the table goes to standard error"


def test_without_json_the_table_is_on_standard_output(run, cluster, trace):
    said = run("simulate", "--cluster", cluster, "--trace", trace, "--policy", "tangram")
    assert (said.code, said.err) == (0, "")
    assert "tangram" in said.out
    assert "No policy has a mean ACT below 2.33 s" in said.out


def test_a_picture_that_finds_no_room_costs_no_report(run, cluster, trace, tmp_path):
    (tmp_path / "full.svg").symlink_to("/dev/full")
    files = ["--json", tmp_path / "x.json", "--plot", tmp_path / "full.svg"]
    said = run("simulate", "--cluster", cluster, "--trace", trace, *files)
    assert said.code == 2
    assert said.err.startswith(f"error: {tmp_path / 'full.svg'}: No space left on device")
    assert json.loads((tmp_path / "x.json").read_text())["actions"] == 3


def test_an_ending_may_be_written_large(run, cluster, trace, tmp_path):
    said = run("simulate", "--cluster", cluster, "--trace", trace, "--plot", tmp_path / "X.SVG")
    assert said.code == 0
    assert (tmp_path / "X.SVG").read_text().startswith("<?xml")


def test_what_a_policy_can_never_run_is_said(run, cluster, trace):
    options = ["--policy", "elastic", "--policy", "pods:5"]
    said = run("simulate", "--cluster", cluster, "--trace", trace, *options).out
    assert (
        "pods:5 can never run 3 of them on this cluster: they failed at once and have no times; "
        "bounds do not hold for it.\n"
    ) in said


def test_what_a_policy_gives_up_is_said_beside_the_bounds(run, cluster, trace):
    """The call of 3 s has to wait longer than a client tries again."""
    cluster.write_text(cluster.read_text() + "  cpus: {kind: quota, limit: 1, window_s: 99}\n")
    trace.write_text(trace.read_text().replace('{"cpu": 1}', '{"cpus": 1}'))
    options = ["--policy", "elastic", "--policy", "unmanaged"]
    said = run("simulate", "--cluster", cluster, "--trace", trace, *options).out
    assert "unmanaged gave up 1 of them before they were done: bounds do not hold for it." in said
    assert "elastic gave up" not in said
    assert "elastic can never" not in said


def test_a_narrow_terminal_cuts_no_figure(run, cluster, trace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    narrow = run("simulate", "--cluster", cluster, "--trace", trace).out
    assert {"policy", "mean", "failed", "decide", "elastic", "2.33"} <= set(narrow.split())
    assert "\u2026" not in narrow


def test_json_goes_to_a_file_in_a_folder_that_is_made(run, cluster, trace, tmp_path):
    target = tmp_path / "new" / "folder" / "report.json"
    said = run("simulate", "--cluster", cluster, "--trace", trace, "--json", target)
    assert "elastic" in said.out
    assert set(json.loads(target.read_text())) == REPORT


def test_plot_draws_every_policy(run, cluster, trace, tmp_path):
    picture = tmp_path / "pictures" / "small.svg"
    options = ["--policy", "pods:1", "--policy", "elastic", "--plot", picture]
    assert run("simulate", "--cluster", cluster, "--trace", trace, *options).code == 0
    drawn = picture.read_text()
    assert "<svg" in drawn
    assert "pods:1" in drawn
    assert "elastic" in drawn


def test_same_input_gives_the_same_report_and_another_seed_another(run, tmp_path):
    trace, cluster = tmp_path / "lab.jsonl", tmp_path / "lab.yaml"
    crowd = ["--set", "n=60", "--set", "cores=4", "--set", "rho=2", "--set", "test_share=0.5"]
    run("trace", "generate", trace, "--family", "lab", "--cluster", cluster, *crowd)

    def report(seed: int) -> dict[str, Any]:
        options = ["--estimates", "noisy:1.0", "--seed", str(seed), "--json", "-"]
        return without_timing(
            run("simulate", "--cluster", cluster, "--trace", trace, *options).json
        )

    assert report(7) == report(7)
    assert report(7) != report(8)


@pytest.mark.parametrize("family", SMALL)
def test_every_family_makes_a_trace_that_runs_on_its_cluster(run, family, tmp_path):
    trace, cluster = tmp_path / "made.jsonl.gz", tmp_path / "made.yaml"
    params, sizes = SMALL[family]
    settings = [word for text in params for word in ("--set", text)]
    settings += [word for text in sizes for word in ("--size", text)]
    made = run("trace", "generate", trace, "--family", family, "--cluster", cluster, *settings)
    assert made.code == 0, made.err
    report = run("simulate", "--cluster", cluster, "--trace", trace, "--json", "-").json
    assert report["actions"] > 0
    assert report["failed"] == 0
    assert report["act"]["mean_s"] >= report["lower_bound"]["act_mean_s"] > 0


def test_same_seed_gives_the_same_file_and_another_seed_another(run, tmp_path):
    def made(name: str, seed: int) -> bytes:
        path = tmp_path / name
        run("trace", "generate", path, "--set", "batch=2", "--set", "tasks=1", "--seed", str(seed))
        return path.read_bytes()

    assert made("a.jsonl.gz", 1) == made("b.jsonl.gz", 1)
    assert made("a.jsonl.gz", 1) != made("c.jsonl.gz", 2)


def test_families_are_listed_with_their_parameters(run):
    said = run("trace", "families", "--json", "-")
    assert set(said.json) == set(SMALL)
    assert said.json["coding"]["default"]["batch"] == 256
    assert "turns_median" in said.err
    assert "pods_per_s" in said.err


def test_a_trace_may_be_plain_or_packed(run, cluster, trace, tmp_path):
    import gzip

    packed: Path = tmp_path / "small.jsonl.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    reports = [
        run("simulate", "--cluster", cluster, "--trace", path, "--json", "-").json
        for path in (trace, packed)
    ]
    assert without_timing(reports[0]) == without_timing(reports[1])
