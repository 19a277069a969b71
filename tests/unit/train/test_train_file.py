"""A training run's file: what it says, and what it is told when it is wrong."""

import pytest

from artangram.config.train import check_tasks, made_tasks, read_train
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
        (("epochs: 4", "loss: distillation"), "teachers: has none to learn from"),
        (("epochs: 4", "correction: {high: 0.5}"), "0 to 0.5 leaves out 1"),
        (("share: 2", "train: {loss: gpro}"), "'gpro' is not a loss"),
        (("share: 2", "train: {lr: 1}"), "tasks.mine.train.lr: unknown key"),
        (("share: 2", "train: {loss: ppo, kl: 0.1}"), "mine.train.kl: ppo has no such term"),
        (("steps: 7", "temperature: 0"), "temperature: 0 cannot be trained on"),
        (("epochs: 4", "backend: horovod"), "say ddp or fsdp"),
        (("epochs: 4", "device: tpu"), "use cpu or cuda"),
        (("model: warm", ""), "model: is missing"),
        (('task: "my_module:MyTask"', 'reward: "a:b"'), "mine.reward: belongs to an agent"),
        (("task:", 'agent: "a:b", task:'), "tasks.mine.task: does not go with an agent"),
        (('task: "my_module:MyTask"', 'agent: "a:b", max_turns: -1'), "max_turns: -1 is neg"),
        (('task: "my_module:MyTask"', 'agent: "a:b", eval: {tsak: 1}'), "eval.tsak: unknown"),
        (("task:", "command: [a], task:"), "tasks.mine.task: does not go with an agent"),
        (('task: "my_module:MyTask"', "command: [a]"), "mine.reward: is missing"),
        (('task: "my_module:MyTask"', 'agent: "a:b", image: c.tar'), "image: belongs to a command"),
        (
            ('task: "my_module:MyTask"', 'command: [a], reward: "a:b", sandbox: {network: true}'),
            "sandbox: may not say 'network'",
        ),
        (("steps: 7", "gateway: here"), "gateway: 'here' is not HOST:PORT"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, change, complaint):
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path, GOOD.replace(*change))


@pytest.mark.parametrize(
    ("problems", "complaint"),
    [
        ("", "run.yaml:5: tasks.mine.problems: is missing"),
        ("none.jsonl", "tasks.mine.problems: .*/none.jsonl: No such file"),
        ("bad.jsonl", "tasks.mine.problems: .*/bad.jsonl:2: .*write a JSON object in each line"),
        ("empty.jsonl", "is empty; write at least one problem"),
        ("json:nothing", "tasks.mine.problems: 'json:nothing'"),
    ],
)
def test_problems_of_an_agent_that_cannot_be_read_are_said(tmp_path, problems, complaint):
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n[1]\n')
    (tmp_path / "empty.jsonl").write_text("\n")
    text = 'model: warm\nsteps: 7\n\ntasks:\n  mine: {agent: "json:loads", problems: "%s"}\n'
    spec = read(tmp_path, text % problems)
    with pytest.raises(BadInput, match=complaint):
        check_tasks(tmp_path / "run.yaml", spec)


def test_the_rows_of_a_file_come_in_another_order_for_each_pass(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(9)))
    (tmp_path / "held.jsonl").write_text('{"id": "x"}\n')
    task = '{agent: "json:loads", problems: rows.jsonl, eval: {problems: held.jsonl}}'
    spec = read(tmp_path, f"model: warm\ntasks: {{mine: {task}}}\n")
    (mine,) = made_tasks(spec, None, job="j")
    passes = [[problem.data["n"] for problem in mine.problems(seed)] for seed in (0, 0, 1)]
    assert passes[0] == passes[1] != passes[2]
    assert sorted(passes[0]) == sorted(passes[2]) == list(range(9))
    ids = {problem.id for seed in (0, 1) for problem in mine.problems(seed)}
    assert len(ids) == 18
    (exam,) = made_tasks(spec, None, job="j", is_exam=True)
    assert [problem.id for problem in exam.problems(7)] == ["7-x"]


def test_a_task_may_have_another_loss_than_its_run(tmp_path):
    text = GOOD.replace("share: 2", "train: {loss: gspo, clip_high: 0.1}")
    train = read(tmp_path, text.replace("epochs: 4", "epochs: 4, mean: tokens")).run.train
    assert (train.rule("calc").kind, train.rule("calc").mean) == ("clip", "tokens")
    other = train.rule("mine")
    assert (other.kind, other.mean, other.clip_low, other.clip_high) == (
        *("sequence", "sequences"),
        *(3e-4, 0.1),
    )


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


def test_a_page_has_room_for_all_keys_that_take_a_value():
    from artangram.config.train import OWN_KEYS, TaskSpec
    from artangram.pipeline.settings import RunSettings
    from artangram.train.settings import TrainSettings

    records = (RunSettings, TaskSpec, TrainSettings)
    keys = [*OWN_KEYS, *(name for record in records for name in record.__struct_fields__)]
    values = [key for key in keys if key not in ("tasks", "train")]
    assert len(values) < 70
