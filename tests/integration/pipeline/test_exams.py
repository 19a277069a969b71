"""Evaluations of a run on its own engines, while it goes on."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.models.config import context_of
from artangram.models.loading import load_tokenizer
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.evaluation import evaluate, served
from artangram.pipeline.exams import read
from artangram.pipeline.metrics import read as read_steps
from artangram.pipeline.settings import Exam, ExamPlan
from artangram.rollout.runner import Runner
from artangram.train.checkpoint import checkpoints
from integration.pipeline import small

pytestmark = pytest.mark.timeout(900)
PROGRAM = (sys.executable, "-c", "from artangram.cli import main; main()")


class SlowWords(small.WordsTask):
    """Its attempts take longer than steps do."""

    def env(self, problem, *, trajectory):
        return SlowWordsEnv(problem.data["word"], fails=False)


class SlowWordsEnv(small.WordsEnv):
    async def reset(self):
        await asyncio.sleep(0.3)
        return await super().reset()


async def test_one_version_answers_while_the_run_learns_the_next(tmp_path, monkeypatch):
    seen = []

    def watched(self, ticket, *, on_env_free, start=Runner.start):
        attempt = start(self, ticket, on_env_free=on_env_free)
        if ticket.id.startswith("eval"):
            attempt.ended.add_done_callback(lambda done: seen.append(done.result()))
        return attempt

    monkeypatch.setattr("artangram.rollout.runner.Runner.start", watched)
    out = tmp_path / "out"
    training = await small.run(
        out, 0, 6, exam=SlowWords(), eval=ExamPlan(every=2, problems=8), checkpoint_every=0
    )
    records = read(out / "evaluations.jsonl")
    # A skipped step makes no version, and none is evaluated twice.
    assert len(records) > 1
    assert {record.step for record in records} <= {0, 2, 4, 6}
    by_version = {}
    for one in seen:
        by_version.setdefault(one.id.rsplit("-", 2)[0], set()).add(one.oldest_version)
        assert len({span.version for part in one.segments for span in part.spans}) == 1
    assert sorted(by_version.values(), key=min) == [{record.version} for record in records]
    # Training went on meanwhile, and the weights that it made waited.
    assert max(step.examined_s for step in read_steps(out / "metrics.jsonl")) > 0.1
    assert training.step == 6


async def test_the_best_version_is_a_model_with_the_success_that_was_reported(tmp_path):
    out = tmp_path / "out"
    plan = ExamPlan(every=5, problems=16, temperature=0.0)
    await small.run(out, 0, 10, eval=plan, exam=small.WordsTask(), checkpoint_every=0)
    best = max(read(out / "evaluations.jsonl"), key=lambda record: record.found.success)
    model = out / "best"
    async with served(model, EnginesSpec(), log=tmp_path / "log") as (gateway, _):
        exam = Exam(problems=16, temperature=0.0, seed=plan.seed)
        tokenizer = load_tokenizer(model)
        again = await evaluate([small.WordsTask()], gateway, exam, tokenizer=tokenizer)
    assert again == best.found
    assert context_of(model)


async def test_a_run_ends_when_it_has_reached_its_goal(tmp_path):
    plan = ExamPlan(every=1, problems=8, goal=0.0)
    training = await small.run(tmp_path / "out", 0, 50, eval=plan, exam=small.WordsTask())
    assert training.step < 4
    again = await small.run(tmp_path / "out", 0, 50, eval=plan, exam=small.WordsTask(), resume=True)
    assert again.step == training.step


def test_a_run_from_a_file_is_killed_resumed_and_ends_early(warm_examples, tmp_path):
    text = (warm_examples / "guessing.yaml").read_text().replace("steps: 50", "steps: 90")
    text += "checkpoint_every: 1\neval: {every: 1, problems: 16, patience: 3}\n"
    file = warm_examples / "examined.yaml"
    file.write_text(text.replace("name: guessing", "name: examined"))
    out = tmp_path / "out" / "examined"
    command = [*PROGRAM, "train", str(file), "--out", str(tmp_path / "out")]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while len(read(out / "evaluations.jsonl")) < 2 or not checkpoints(out / "checkpoints"):
        assert victim.poll() is None, "it ended by itself"
        try:
            victim.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    done = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    records = read(out / "evaluations.jsonl")
    # Each step once; skipped steps make no version, and a version is evaluated once.
    assert [record.step for record in records] == sorted({record.step for record in records})
    assert len({record.version for record in records}) == len(records)
    best = max(records, key=lambda record: record.found.success)
    assert records.index(best) == len(records) - 4
    assert json.loads((out / "best" / "evaluation.json").read_bytes())["step"] == best.step
    assert "ended early: 3 evaluations in a row" in done.stdout
    assert "evaluated step" in done.stdout
