"""`artangram plan affinity` says when two kinds pay, from what a run recorded."""

from pathlib import Path

import msgspec
import pytest

from artangram.gateway.counters import TaskTokens
from artangram.pipeline.metrics import FILE_NAME
from artangram.train.tally import StepMetrics

DEVICES = ["--devices", "H800=64,H20=24"]
ZEROS = {int: 0, float: 0.0, bool: False}
REPORT = {
    one.name: ZEROS.get(one.type, {}) for one in msgspec.structs.fields(StepMetrics) if one.required
}
"""Any figures: the plan does not look at them."""


def tokens(*, turns: int, opening: int, seen: int, reply: int, hit_rate: float | None, sessions=10):
    """What a gateway counts of conversations that are all alike."""
    prompts = [opening + turn * (seen + reply) for turn in range(turns)]
    prompt = sessions * sum(prompts)
    held = sessions * sum(before + reply for before in prompts[:-1])
    return TaskTokens(
        sessions=sessions,
        turns=sessions * turns,
        opening=sessions * opening,
        prompt=prompt,
        sampled=sessions * turns * reply,
        asked=0 if hit_rate is None else prompt,
        found=0 if hit_rate is None else round(hit_rate * held),
    )


def a_run(directory: Path, *, hit_rate: float | None = 0.8, train_s: float = 5.0) -> Path:
    tasks = {
        "lake": tokens(turns=60, opening=1000, seen=240, reply=60, hit_rate=hit_rate),
        "math": tokens(turns=2, opening=500, seen=200, reply=2400, hit_rate=hit_rate),
    }
    record = {
        "step": 1,
        "at_s": 20.0,
        "collect_s": 15.0 if train_s < 10 else 0.1,
        "train_s": train_s,
        "publish_s": 0.0,
        "exposed_s": 0.0,
        "report": REPORT,
        "ended": {},
        "tokens": tasks,
    }
    (directory / FILE_NAME).write_bytes(msgspec.json.encode(record) + b"\n")
    return directory


def test_what_was_recorded_is_read_back_and_both_kinds_pay(run, tmp_path: Path):
    picture = tmp_path / "pays.svg"
    told = run("plan", "affinity", a_run(tmp_path), *DEVICES, "--plot", picture, "--json", "-")
    assert told.code == 0, told.err
    lake = told.json["mix"]["tasks"]["lake"]
    assert (lake["turns"], lake["prompt_tokens"]) == (60, 1000)
    assert (lake["seen_tokens"], lake["reply_tokens"]) == (pytest.approx(240), 60)
    assert told.json["mix"]["hit_rate"] == pytest.approx(0.8, abs=0.001)
    plan = told.json["plan"]
    assert plan["best_gain"] >= plan["gain"] > 1.0
    assert plan["declare"]["lake"] in ("H800", "auto")
    assert told.json["gains"]["readers"] == ["lake"]
    assert "Declare {" in told.err
    assert picture.read_text().startswith("<?xml")


def test_a_busy_trainer_is_said_first(run, tmp_path: Path):
    told = run("plan", "affinity", a_run(tmp_path, train_s=100.0), *DEVICES)
    assert "trainer-bound: no gain" in told.out


def test_more_hits_leave_less_to_gain(run, tmp_path: Path):
    def gain(hits: str) -> float:
        told = run("plan", "affinity", tmp_path, *DEVICES, "--hit-rate", hits, "--json", "-")
        return told.json["plan"]["best_gain"]

    a_run(tmp_path)
    assert gain("1") < gain("0.8")


def test_equal_prices_make_one_kind_enough(run, tmp_path: Path):
    price = ["--price", "H800=1", "--price", "H20=10"]
    told = run("plan", "affinity", a_run(tmp_path), *DEVICES, *price)
    assert "H800 alone" in told.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "H800"], "is not KIND=NUMBER"),
        (["--devices", "H800=3"], "1 kinds cannot be weighed"),
        (["--devices", "H800=3,B7=2"], "'B7' is unknown"),
        ([*DEVICES, "--price", "H20=0"], "H20 costs 0"),
        ([*DEVICES, "--hit-rate", "2"], "2.0 is no share"),
        ([*DEVICES, "--model", "none"], "'none' is unknown"),
    ],
)
def test_what_cannot_be_is_said(run, tmp_path: Path, options, said):
    told = run("plan", "affinity", a_run(tmp_path), *options)
    assert told.code != 0
    assert said in told.err


def test_a_run_without_hits_or_steps_is_said(run, tmp_path: Path):
    told = run("plan", "affinity", a_run(tmp_path, hit_rate=None), *DEVICES)
    assert "no engine of the run reported" in told.err
    told = run("plan", "affinity", tmp_path / "none", *DEVICES)
    assert "has no recorded step" in told.err
