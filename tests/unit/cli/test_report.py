"""`artangram report`: one page of runs, journals and simulations."""

import gzip

import msgspec
import pytest
from exam_builder import an_exam
from step_builder import a_step

from artangram.observe.journalfile import open_journal
from artangram.observe.recording import JOURNAL
from artangram.pipeline.transcripts import Transcript, Utterance
from artangram.testing.fakes import fake_cluster


def a_run(place, *rewards):
    place.mkdir(parents=True)
    with (place / "metrics.jsonl").open("wb") as file:
        for step, reward in enumerate(rewards, start=1):
            file.write(msgspec.json.encode(a_step(step, reward)) + b"\n")
    said = [(1, 0.0, "first"), (len(rewards), 1.0, "last <b>"), (len(rewards), 0.2, "poor")]
    with (place / "transcripts.jsonl.gz").open("wb") as file:
        for step, reward, text in said:
            one = Transcript(
                step=step,
                task="calc",
                problem="p",
                trajectory=f"t-{text}",
                status="ok",
                reward=reward,
                conversations=[[Utterance(False, "question"), Utterance(True, text)]],
            )
            file.write(gzip.compress(msgspec.json.encode(one) + b"\n"))
    return place


def test_runs_stand_side_by_side_with_their_curves_and_attempts(run, tmp_path):
    one = a_run(tmp_path / "one", 0.1, 0.5, 0.9)
    two = a_run(tmp_path / "two", -1.0, 3.0)
    told = run("report", one, two, "--out", tmp_path / "page.html", "--json", "-")
    assert told.code == 0, told.err
    assert told.json["runs"] == [str(one), str(two)]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<polyline") == 4  # Both in one picture, and each one with its task.
    assert page.count("<details>") == 6
    assert "last &lt;b&gt;" in page
    assert "last <b>" not in page
    assert "one, calc, step 1, the best attempt kept: reward 0.00, ok" in page
    assert "http" not in page  # It loads nothing.


def test_evaluations_have_a_picture_of_their_own(run, tmp_path):
    place = a_run(tmp_path / "one", 0.1, 0.5)
    lines = [msgspec.json.encode(an_exam(step, success)) for step, success in ((0, 0.1), (2, 0.6))]
    (place / "evaluations.jsonl").write_bytes(b"\n".join([*lines, b""]))
    told = run("report", place, "--out", tmp_path / "page.html")
    assert told.code == 0, told.err
    page = (tmp_path / "page.html").read_text()
    assert page.count("<polyline") == 2
    assert "The best is 0.600 at step 2" in page


async def test_a_journal_shows_how_long_actions_took(run, tmp_path):
    journal, _ = await open_journal(tmp_path / JOURNAL)
    async with fake_cluster(journal=journal) as cluster, cluster.trajectory() as t:
        await t.run(["true"], kind="tests/<i>")
    await journal.close()
    told = run("report", tmp_path, "--out", tmp_path / "page.html")
    assert told.code == 0, told.err
    assert "tests/<i>" in told.out
    assert "tests/&lt;i&gt;" in (tmp_path / "page.html").read_text()


def test_simulations_are_compared_by_policy(run, cluster, trace, tmp_path):
    policies = ["--policy", "elastic", "--policy", "fcfs"]
    both, page = tmp_path / "both.json", tmp_path / "page.html"
    made = run("simulate", "--cluster", cluster, "--trace", trace, *policies, "--json", both)
    assert made.code == 0, made.err
    told = run("report", both, "--out", page)
    assert told.code == 0, told.err
    assert "elastic" in told.out
    assert "fcfs on" in page.read_text()


@pytest.mark.parametrize("what", ["nothing", "empty", "other"])
def test_what_cannot_be_reported_is_said_with_what_can(run, tmp_path, what):
    source = tmp_path / what
    if what == "empty":
        source.mkdir()
    if what == "other":
        source.write_text("{}")
    told = run("report", source, "--out", tmp_path / "page.html")
    assert told.code == 2
    assert str(source) in told.err
    assert "simulate --json" in told.err
    assert not (tmp_path / "page.html").exists()
