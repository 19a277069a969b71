"""The cluster of a run: shared with another run, or its own and found again after a crash."""

from collections import Counter

import msgspec
import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.pipeline.runstate import STATE_NAME, RunState
from artangram.train.checkpoint import latest
from integration.pipeline.served import Served, actions, balanced, finished

pytestmark = pytest.mark.timeout(900)  # Of a machine that does much else.

GROUPS, GROUP_SIZE = 4, 4


def test_two_runs_share_a_cluster_and_each_has_its_own_accounts(tmp_path, model):
    with Served(tmp_path, model) as served:
        served.up()
        runs = [served.train(name, *served.service, steps=2) for name in ("one", "other")]
        assert [finished(run) for run in runs] == [0, 0]
    submitted, reported = actions(served.state)
    assert {action: len(records) for action, records in reported.items()} == submitted
    jobs = Counter(record.job for (record,) in reported.values())
    for name in ("one", "other"):
        position = served.position(name)
        assert balanced(position)
        assert position.settled == 2 * GROUPS
        # Every attempt that was trained on read its file here, under the name of its run.
        assert jobs[name] >= 2 * GROUPS * GROUP_SIZE
    assert set(jobs) == {"one", "other"}


def test_a_killed_run_finds_its_own_cluster_again(tmp_path, model):
    with Served(tmp_path, model) as served:
        run = served.train("first", steps=4)
        served.wait_for_steps("first", 2, run)
        run.kill()
        run.wait()
        out = served.place / "out" / "first"
        saved = (latest(out / "checkpoints") / STATE_NAME).read_bytes()
        before = msgspec.msgpack.decode(saved, type=RunState).cluster_ended
        assert finished(served.train("first", steps=4, resume=True)) == 0
    position = served.position("first")
    assert (position.settled, balanced(position)) == (4 * GROUPS, True)
    submitted, reported = actions(out / "cluster")
    assert set(submitted.values()) == {1}
    assert {action: len(records) for action, records in reported.items()} == submitted
    # The journal is that of both lives: what ended before the checkpoint is still told in it.
    assert 0 < before < len(reported)


def test_a_cluster_that_is_not_there_is_said_in_one_line(tmp_path, model):
    with Served(tmp_path, model) as served:
        run = served.train("first", *served.service, steps=1)
        assert run.wait(timeout=600) != 0
        said = (tmp_path / "first.log").read_text()
    assert "start it with `artangram up`" in said
    assert "Traceback" not in said
    assert not any(path.is_file() for path in (tmp_path / "out").rglob("*"))
