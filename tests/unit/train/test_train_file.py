"""A training run's file: what it says, and what it is told when it is wrong."""

import pytest

from artangram.config.train import read_train
from artangram.core.errors import BadInput

GOOD = """
name: first
model: warm
tasks: {calc: {share: 1}, mine: {task: "my_module:MyTask", share: 2}}
steps: 7
train: {lr: 1.0e-3, epochs: 4}
"""


def read(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return read_train(path)


def test_a_file_says_what_runs(tmp_path):
    spec = read(tmp_path, GOOD)
    assert (spec.run.name, spec.run.steps, spec.run.train.epochs) == ("first", 7, 4)
    assert {name: task.share for name, task in spec.tasks.items()} == {"calc": 1, "mine": 2}
    assert spec.model == tmp_path / "warm"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("steps: 7", "stpes: 7"), r"run.yaml:5: stpes: unknown key; did you mean steps\?"),
        (("lr: 1.0e-3", "rate: 1"), "train.rate: unknown key"),
        (("steps: 7", "steps: none"), "steps"),
        (("steps: 7", "environments: 8"), "groups"),
        (("steps: 7", "mode: sometimes"), "mode"),
        (("calc: {share: 1}", "calk: {share: 1}"), "is no shipped task"),
        (("share: 2", "share: 0"), "0 is no share"),
        (("model: warm", ""), "model: is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, change, complaint):
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path, GOOD.replace(*change))


def test_fewer_than_forty_keys_are_there_to_know():
    from artangram.pipeline.settings import RunSettings
    from artangram.train.settings import TrainSettings

    assert len(RunSettings.__struct_fields__) + len(TrainSettings.__struct_fields__) < 40
