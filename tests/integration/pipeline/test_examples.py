"""The examples run as they are."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.core.errors import InfraFailed
from artangram.pipeline.metrics import read
from artangram.testing.fakes import fake_cluster

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.timeout(900)  # Of a machine that does much else.


@pytest.fixture
def home(tmp_path):
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


@pytest.fixture
def warm_home(warm_examples, tmp_path):
    return Path(shutil.copytree(warm_examples, tmp_path / "examples"))


def run(home, *argv):
    found = subprocess.run(
        [sys.executable, *argv], cwd=home, capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def artangram(home, *argv):
    return run(home, "-c", "from artangram.cli import main; main()", *argv)


def test_one_action(home):
    assert run(home, "one_action.py").startswith("6 times 7 is 42")


def test_the_student_comes_closer_to_its_teachers(home):
    lines = run(home, "distillation.py").splitlines()
    gaps = [float(line.split()[2]) for line in lines]
    assert gaps[-1] < 0.8 * gaps[0]


def test_an_environment_of_ones_own_is_planned_trained_and_resumed(warm_home):
    text = (warm_home / "guessing.yaml").read_text()
    (warm_home / "guessing.yaml").write_text(text.replace("steps: 50", "steps: 2"))
    assert "180" not in (plan := artangram(warm_home, "train", "guessing.yaml", "--print-plan"))
    assert "24 problems" in plan
    assert "step 2/2" in artangram(warm_home, "train", "guessing.yaml")
    (warm_home / "guessing.yaml").write_text(text.replace("steps: 50", "steps: 3"))
    resumed = artangram(warm_home, "train", "guessing.yaml", "--resume")
    assert "step 3/3" in resumed
    assert "step 2/3" not in resumed


def test_an_environment_with_a_sandbox_is_played_by_hand(home):
    said = run(home, "shell_task.py")
    assert said.endswith("> wc -l < notes.txt\n51\nscore 1.0\n")


async def test_a_sandbox_without_the_program_is_no_reward_of_zero(home, monkeypatch):
    """In the fake one there is neither a shell nor a Python."""
    monkeypatch.syspath_prepend(home)
    shell_task, trl_reward = map(importlib.import_module, ("shell_task", "trl_reward"))
    async with fake_cluster() as client:
        task = shell_task.ShellTask(client)
        env = task.env(next(task.problems(seed=0)), trajectory="by-hand")
        await env.reset()
        with pytest.raises(InfraFailed, match="No such file"):
            await env.respond("wc -l < notes.txt")
        await env.aclose()
        assert await trl_reward.judged(client, "print(6)", "6") is None


def test_a_loop_of_ones_own_makes_versions(warm_home):
    text = (warm_home / "own_loop.py").read_text()
    (warm_home / "own_loop.py").write_text(text.replace('"guessing", 30', '"guessing", 2'))
    lines = run(warm_home, "own_loop.py").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["step 1", "step 2"]


def test_trl_is_rewarded_by_sandboxes(home):
    pytest.importorskip("trl", reason="it is not installed")
    said = run(home, "trl_reward.py")
    assert said.count("rewards/runs/mean") == 2


def test_the_plan_of_the_tools_example_is_read(warm_home):
    """With another model: its own takes long to make."""
    text = (warm_home / "tools.yaml").read_text()
    (warm_home / "tools.yaml").write_text(text.replace("models/tools", "models/guessing"))
    assert "calc" in artangram(warm_home, "train", "tools.yaml", "--print-plan")


def test_a_model_of_transformers_is_trained_with_our_engine(home):
    pytest.importorskip("transformers", reason="its extra is not installed")
    text = (home / "huggingface.yaml").read_text()
    (home / "huggingface.yaml").write_text(text.replace("steps: 30", "steps: 2"))
    run(home, "huggingface_model.py")
    assert "step 2/2" in artangram(home, "train", "huggingface.yaml")
    records = read(home / "out" / "huggingface" / "metrics.jsonl")
    assert [record.report.trajectories for record in records] == [6 * 8] * 2
    # What was sampled is what the trainer scores, and the second step sampled with new weights.
    assert max(record.report.fresh_error for record in records) < 1e-4
    assert records[-1].report.version == 2


def test_a_curriculum_learns_the_task_that_comes_first_and_the_one_that_comes_later(warm_home):
    artangram(warm_home, "train", "curriculum.yaml")
    records = read(warm_home / "out" / "curriculum" / "metrics.jsonl")
    learned = {}
    for task in ("sour", "sweet"):
        found = [r.report.rewards[task] for r in records if task in r.report.rewards]
        assert fmean(found[:3]) < 0.4  # A guess among four colours.
        learned[task] = fmean(found[-5:])
    # One fruit that is given up leaves its task at 0.5 or less.
    assert min(learned.values()) > 0.55, learned
    assert fmean(learned.values()) > 0.7, learned
