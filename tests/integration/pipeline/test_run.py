"""Whole runs with a real engine process, a real trainer and a task without resources."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest

pytest.importorskip("torch", reason="training needs torch")

from process_support import environ

from artangram.core.errors import BadInput
from artangram.pipeline.enginepools import EnginePool, EnginesSpec
from artangram.pipeline.metrics import read
from artangram.pipeline.runstate import STATE_NAME, RunState
from artangram.train.checkpoint import latest
from integration.pipeline import small


def rewards(out):
    return [record.report.reward for record in read(out / "metrics.jsonl")]


def accounts(training):
    return training.rollout.source.positions()["words"]


def balanced(position):
    done = position.trained + sum(position.dropped.values()) + len(position.outstanding)
    return position.drawn == done


async def test_a_run_learns_what_is_rewarded_and_accounts_for_every_problem(tmp_path):
    training = await small.run(tmp_path / "out", 0, 50, checkpoint_every=0)
    found = rewards(tmp_path / "out")
    assert sum(found[:3]) / 3 < 0.45
    # Which versions meet in a batch depends on the machine, and so does when it is learned.
    assert max(sum(found[at : at + 3]) / 3 for at in range(len(found) - 2)) > 0.6
    assert balanced(accounts(training))
    assert accounts(training).settled == 50 * 6
    records = read(tmp_path / "out" / "metrics.jsonl")
    assert max(record.report.max_staleness for record in records) <= 1
    assert max(record.report.fresh_error for record in records) < 1e-4


async def test_one_off_learns_from_whole_batches_of_the_version_before(tmp_path):
    training = await small.run(tmp_path / "out", 0, 5, mode="one-off", checkpoint_every=0)
    records = read(tmp_path / "out" / "metrics.jsonl")
    assert [record.report.max_staleness for record in records] == [0, 1, 1, 1, 1]
    # None of it is fresher than the rest.
    assert [record.report.stale_share for record in records] == [0, 1, 1, 1, 1]
    assert balanced(accounts(training))
    assert accounts(training).settled == 5 * 6


async def test_a_batch_of_fewer_whole_groups_is_taken_when_waiting_costs_more(tmp_path):
    fields = {"task": small.SometimesSlow(), "min_groups": 3, "checkpoint_every": 0}
    training = await small.run(tmp_path / "out", 0, 3, **fields)
    reports = [record.report for record in read(tmp_path / "out" / "metrics.jsonl")]
    assert min(report.groups for report in reports) in range(3, 6)
    assert all(report.trajectories == 8 * report.groups for report in reports)
    assert accounts(training).settled == sum(report.groups for report in reports)
    assert balanced(accounts(training))


async def test_infrastructure_failures_never_become_rewards(tmp_path):
    task = small.WordsTask(failing=0.2)
    training = await small.run(tmp_path / "out", 0, 3, task=task, checkpoint_every=0)
    records = read(tmp_path / "out" / "metrics.jsonl")
    assert records[-1].ended["infra_failed"] > 0
    # Whole groups of attempts that were scored, whatever failed beside them.
    assert all(record.report.trajectories == 6 * 8 for record in records)
    assert balanced(accounts(training))


async def test_a_killed_engine_is_replaced_and_no_problem_is_lost(tmp_path):
    def kill(training, record):
        if record.step == 2:
            (engine,) = training.fleet.engines
            os.kill(engine.pid, signal.SIGKILL)

    training = await small.run(tmp_path / "out", 0, 5, checkpoint_every=0, on_step=kill)
    records = read(tmp_path / "out" / "metrics.jsonl")
    assert [record.step for record in records] == [1, 2, 3, 4, 5]
    assert training.fleet.lost == 1
    assert accounts(training).settled == 5 * 6
    assert balanced(accounts(training))


def served(training):
    """Requests that each class of hardware was sent."""
    sent = training.gateway.counters.by_replica
    return {one.hardware: sent.get(one.name, 0) for one in training.gateway.replicas}


async def test_a_task_goes_to_the_class_it_is_bound_to(tmp_path):
    pools = {"compute": EnginePool(slots=48), "bandwidth": EnginePool(slots=48)}
    engines = EnginesSpec(pools=pools, affinity={"words": ["bandwidth"]})
    found = {}

    def look(training, record):
        found.update(served(training))

    await small.run(
        tmp_path / "out", 0, 2, checkpoint_every=0, engines=engines, on_step=look, mode="areal"
    )
    assert found["compute"] == 0
    assert found["bandwidth"] >= 2 * 48


async def test_what_one_class_reads_another_writes_with_the_same_probabilities(tmp_path):
    engines = EnginesSpec(
        pools={"compute": EnginePool(slots=48), "bandwidth": EnginePool(slots=48)},
        split={"words": {"prefill": "compute", "decode": "bandwidth"}},
    )
    training = await small.run(tmp_path / "out", 0, 3, checkpoint_every=0, engines=engines)
    records = read(tmp_path / "out" / "metrics.jsonl")
    assert training.gateway.counters.splits > 48
    assert max(record.report.fresh_error for record in records) < 1e-4
    assert balanced(accounts(training))


def start(out, *options):
    return subprocess.Popen(
        [sys.executable, small.__file__, str(out), "1", "8", *options],
        env=environ(),
        start_new_session=True,
    )


def test_a_killed_run_resumes_with_the_same_accounts(tmp_path):
    out = tmp_path / "out"
    victim = start(out)
    while len(read(out / "metrics.jsonl")) < 3:
        assert victim.poll() is None, "it ended by itself"
        with_timeout(victim)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert start(out, "resume").wait(timeout=600) == 0
    assert [record.step for record in read(out / "metrics.jsonl")] == list(range(1, 9))
    state = msgspec.msgpack.decode(
        (latest(out / "checkpoints") / STATE_NAME).read_bytes(), type=RunState
    )
    position = state.rollout.source.tasks["words"]
    assert position.settled == 8 * 6
    assert balanced(position)


def with_timeout(process):
    """A moment, or until it ends."""
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        return


async def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    await small.run(tmp_path / "out", 0, 1)
    with pytest.raises(BadInput, match="same name and seed"):
        await small.run(tmp_path / "out", 5, 2, resume=True)
