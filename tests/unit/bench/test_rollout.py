"""The bench of the rollout: what it prints and writes when nobody looks."""

import json

import pytest


def test_each_experiment_says_when_it_is_done_and_what_was_cut_off(run):
    asked = ("--only", "trajectories", "--batch", 8, "--seeds", 1, "--json", "-")
    said = run("bench", "rollout", *asked)
    assert said.code == 0, said.err
    assert "trajectories: " in said.err
    rows = said.json["figures"]["gains"]
    assert [row["experiment"] for row in rows] == ["trajectory-level rollout"] * 3
    for row in rows:
        assert row["gain"] == pytest.approx(row["baseline_s"] / row["ours_s"])
        assert (row["cancelled"], row["cut_length"]) == (0.0, None)


def test_each_experiment_has_a_file_of_its_own(run, tmp_path):
    asked = ("--only", "sensitivity,trajectories", "--batch", 8, "--seeds", 1, "--into", tmp_path)
    assert run("bench", "rollout", *asked).code == 0
    for name in ("sensitivity", "trajectories"):
        figures = json.loads((tmp_path / f"rollout_{name}.json").read_bytes())["figures"]
        assert bool(figures["sensitivity"]) == (name == "sensitivity")
        assert bool(figures["gains"]) == (name == "trajectories")


def test_an_experiment_that_is_unknown_is_refused(run):
    said = run("bench", "rollout", "--only", "magic")
    assert said.code == 2
    assert "say some of trajectories" in said.err
