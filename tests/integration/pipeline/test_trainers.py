"""A run from a file whose trainer is two processes, one of which is killed; and its curriculum."""

import re
import shutil

import msgspec
import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.pipeline.metrics import read
from artangram.pipeline.runstate import STATE_NAME, RunState
from artangram.train.checkpoint import latest
from integration.pipeline.processes import below
from integration.pipeline.served import Served, balanced, killed

pytestmark = pytest.mark.timeout(900)  # Of a machine that does much else.

STEPS, GROUPS, GROUP_SIZE = 6, 6, 8
SWEET_FROM = 2
"""The version from which on there is a second task, with twice the share of the first."""


def the_example(place, warm):
    """The curriculum of `examples`, shortened, trained by two processes that keep every step."""
    for name in ("guessing.py", "curriculum.py"):
        shutil.copy(warm / name, place)
    shutil.copytree(warm / "models", place / "models")
    changes = {
        r"\[\[0, 2\], \[10, 1\]\]": "[[0, 1]]",
        r"\[\[0, 1\], \[10, 2\]\]": f"[[0, 0], [{SWEET_FROM}, 2]]",
        r"steps: \d+": f"steps: {STEPS}\ncheckpoint_every: 1",
        r"groups: \d+\nmin_groups: \d+": f"groups: {GROUPS}\nmin_groups: {GROUPS}",
        r"min_samples: \d+": "min_samples: 1, processes: 2",
    }
    text = (warm / "curriculum.yaml").read_text()
    for old, new in changes.items():
        text, found = re.subn(old, new, text, count=1)
        assert found, old
    (place / "curriculum.yaml").write_text(text)
    return place / "curriculum.yaml"


def test_a_killed_process_of_the_trainer_costs_no_problem_and_no_step(tmp_path, warm_examples):
    with Served(tmp_path) as served:
        run = served.train_file(the_example(tmp_path, warm_examples))
        served.wait_for_steps("curriculum", 2, run)
        before = below(run.pid, "artangram.train.rank")
        killed(before[-1])
        assert run.wait(timeout=600) == 0
    said = (tmp_path / "curriculum.log").read_text()
    assert "of the trainer ended" in said
    assert len(before) == 2
    out = tmp_path / "out" / "curriculum"
    records = read(out / "metrics.jsonl")
    assert [record.step for record in records] == list(range(1, STEPS + 1))
    assert {record.report.trajectories for record in records} == {GROUPS * GROUP_SIZE}
    check_curriculum(out, records)


def check_curriculum(out, records):
    saved = (latest(out / "checkpoints") / STATE_NAME).read_bytes()
    tasks = msgspec.msgpack.decode(saved, type=RunState).rollout.source.tasks
    assert all(balanced(position) for position in tasks.values())
    assert sum(position.settled for position in tasks.values()) == STEPS * GROUPS
    # The version that a batch is for is the one before the step, and decides its tasks.
    versions = [0, *(record.report.version for record in records)]
    for version, record in zip(versions, records, strict=False):
        assert ("sweet" in record.report.rewards) == (version >= SWEET_FROM)
    with_both = sum(version >= SWEET_FROM for version in versions[:-1])
    assert with_both > 0
    assert tasks["sweet"].settled == with_both * GROUPS * 2 // 3
