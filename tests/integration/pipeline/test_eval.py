"""`artangram eval`: the model of a run, its checkpoints and others, on problems held out."""

import json
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="engines need torch")

from artangram.config.train import TaskSpec
from artangram.core.errors import BadInput
from artangram.models.beside import copy_beside_weights
from artangram.pipeline.taskfactory import task_named

PATIENCE_S = 600.0
PROGRAM = (sys.executable, "-c", "from artangram.cli import main; main()")

pytestmark = pytest.mark.timeout(900)  # Of a machine that does much else.


@pytest.fixture(scope="module")
def home(warm_examples, tmp_path_factory):
    """The example, trained well enough that it cannot be taken for its beginning."""
    home = shutil.copytree(warm_examples, tmp_path_factory.mktemp("eval") / "examples")
    assert artangram(home, "train", "guessing.yaml").returncode == 0
    return home


def artangram(home, *argv):
    command = [*PROGRAM, *argv]
    return subprocess.run(
        command, cwd=home, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def found(home, *argv):
    done = artangram(home, "eval", "guessing.yaml", "--json", "-", *argv)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_newest_checkpoint_is_better_than_what_the_run_began_with(home):
    trained = found(home, "--problems", "200")
    began = found(home, "--problems", "200", "--model", "models/guessing")
    assert trained["model"] == "out/guessing/checkpoints/step-00000050"
    assert trained["found"]["problems"] == began["found"]["problems"] == 200
    # Twelve seeds ended above 0.9; without learning it stays near a quarter.
    assert trained["found"]["success"] > 0.75 > began["found"]["success"] + 0.3
    assert 0 < trained["found"]["errors"]["guessing"] < 0.05


def test_the_same_problems_are_asked_of_every_model(home):
    likeliest = ("--temperature", "0", "--problems", "10")
    assert found(home, *likeliest)["found"] == found(home, *likeliest)["found"]


def test_a_run_without_checkpoints_is_asked_as_it_would_begin(home):
    text = (home / "guessing.yaml").read_text()
    (home / "new.yaml").write_text(text.replace("name: guessing", "name: new"))
    done = artangram(home, "eval", "new.yaml", "--problems", "2", "--json", "-")
    assert json.loads(done.stdout)["model"] == "models/guessing"
    assert (
        "out/new holds no checkpoint: evaluating the model that the run starts from" in done.stderr
    )


def test_a_run_that_is_over_says_so(home):
    done = artangram(home, "train", "guessing.yaml", "--resume")
    wanted = "out/guessing: all of its 50 steps are made; raise `steps` to go on"
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, wanted), done.stderr


def test_what_is_no_model_is_said_in_one_line(home):
    done = artangram(home, "eval", "guessing.yaml", "--model", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "out/tokenizer.json" in done.stderr


def test_all_that_lies_beside_the_weights_is_copied_and_no_weights(tmp_path):
    model, directory = tmp_path / "model", tmp_path / "step"
    model.mkdir(), directory.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors.index.json", "a.safetensors"):
        (model / name).write_text(name)
    (model / "deeper.json").mkdir()
    copy_beside_weights(model, directory)
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", "tokenizer.json"]


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (TaskSpec(), {"held_out": True}),
        (TaskSpec(eval={"held_out": False}), {"held_out": False}),
        (TaskSpec(task="a:B", options={"level": 1}), {"level": 1}),
        (TaskSpec(task="a:B", options={"level": 1}, eval={"level": 2}), {"level": 2}),
    ],
)
def test_options_of_an_exam(spec, options):
    assert spec.exam_options == options


def test_an_option_that_a_shipped_task_does_not_know_is_refused():
    with pytest.raises(BadInput, match="knows no 'level'"):
        task_named("calc", "", None, job="j", options={"level": 2})
