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
        (("calc: {share: 1}", "calk: {share: 1}"), "is not a shipped task"),
        (("share: 2", "share: -1"), "-1 is negative"),
        (
            ("share: 2", "share: [[5, 1]]"),
            r"tasks.mine.share: \[\(5, 1\)\] does not begin at version 0",
        ),
        (("share: 2", "share: [[0, 1], [9, 2], [3, 1]]"), "does not begin at version 0 and rise"),
        (("share: 2", "share: often"), "share"),
        (("name: first", "name: ../first"), "no name of a folder"),
        (("steps: 7", "min_groups: 17"), "17 of 16 groups"),
        (("epochs: 4", "processes: 0"), "processes: 0 is not positive"),
        (("epochs: 4", "fade_steps: -1"), "fade_steps: -1 is negative"),
        (("epochs: 4", "loss: ppo, kl: 0.1"), "ppo has no such term"),
        (("epochs: 4", "loss: distillation"), "train.loss: has no teachers in a file"),
        (("epochs: 4", "backend: horovod"), "say ddp or fsdp"),
        (("epochs: 4", "device: tpu"), "use cpu or cuda"),
        (("model: warm", ""), "model: is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, change, complaint):
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path, GOOD.replace(*change))


def test_a_curriculum_is_pairs_of_a_version_and_a_share(tmp_path):
    easy, hard = "calc: {share: [[0, 3], [40, 1]]}", "share: [[0, 0], [20, 1], [40, 3]]"
    text = GOOD.replace("calc: {share: 1}", easy).replace("share: 2", hard)
    found = [(stage.from_version, stage.shares) for stage in read(tmp_path, text).stages]
    assert found == [
        (0, {"calc": 3, "mine": 0}),
        (20, {"calc": 3, "mine": 1}),
        (40, {"calc": 1, "mine": 3}),
    ]


def test_at_no_version_may_all_shares_be_zero(tmp_path):
    text = GOOD.replace("share: 1", "share: [[0, 1], [5, 0]]").replace("share: 2", "share: 0")
    with pytest.raises(BadInput, match="no task with a share at version 5"):
        read(tmp_path, text)


def test_fewer_than_forty_keys_take_a_value():
    from artangram.config.train import OWN_KEYS, TaskSpec
    from artangram.pipeline.settings import RunSettings
    from artangram.train.settings import TrainSettings

    records = (RunSettings, TaskSpec, TrainSettings)
    keys = [*OWN_KEYS, *(name for record in records for name in record.__struct_fields__)]
    values = [key for key in keys if key not in ("tasks", "train")]
    assert len(values) < 40
