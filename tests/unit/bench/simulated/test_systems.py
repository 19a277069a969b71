"""The systems that are compared: what each does with the same small cluster."""

import pytest
from msgspec import structs

from artangram.gateway.hardware import model_shape
from artangram_bench.simulated.cluster import PoolPlan, Scenario
from artangram_bench.simulated.experiments import trajectories
from artangram_bench.simulated.run import simulate
from artangram_bench.simulated.settings import Settings
from artangram_bench.simulated.systems import (
    ALONE,
    AREAL,
    HOMOGENEOUS,
    MIXED,
    ONE_OFF,
    ROLLART,
    SYNC,
    SYNC_PLUS,
)
from artangram_bench.simulated.tasks import TaskShape
from artangram_bench.simulated.workload import mixed_tasks

TASK = TaskShape(
    name="t",
    turns=(2, 5),
    prompt_tokens=200,
    seen_tokens=50,
    reply_tokens=400,
    reply_spread=0.8,
    turn_s=5.0,
    turn_sigma_s=4.0,
)
SMALL = Scenario(
    model=model_shape("qwen3-8b"),
    pools=(PoolPlan(hardware="H800", devices=1), PoolPlan(hardware="H20", devices=1)),
    tasks=(TASK,),
    groups=4,
    group_size=4,
    environments=32,
    train_s=20.0,
    steps=6,
)


def test_every_idea_that_is_added_makes_steps_shorter():
    in_order = (SYNC, SYNC_PLUS, ONE_OFF, AREAL)
    steps = [simulate(system.on(SMALL)).step_s for system in in_order]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize(
    ("system", "worst"),
    [(SYNC, 0), (SYNC_PLUS, 0), (ONE_OFF, 1), (AREAL, 1), (ROLLART.bounded(2), 2)],
    ids=lambda value: getattr(value, "name", value),
)
def test_data_is_as_old_as_the_system_lets_it_become(system, worst):
    outcome = simulate(system.on(SMALL))
    assert outcome.worst_staleness <= worst
    assert outcome.worst_staleness >= min(worst, 1)
    assert outcome.trained == 6 * 16


def test_weights_beside_the_work_stop_replicas_for_less():
    beside, stopping = simulate(ROLLART.on(SMALL)), simulate(AREAL.on(SMALL))
    assert beside.exposed_s < 0.5 * stopping.exposed_s


def test_each_feature_alone_differs_from_areal_in_one_thing():
    fields = [name for name in AREAL.__struct_fields__ if name != "name"]
    changed = [
        {name for name in fields if getattr(one, name) != getattr(AREAL, name)} for one in ALONE
    ]
    assert changed == [
        {"devices", "affinity"},
        {"weights_beside"},
        {"staleness"},
        {"extra_siblings"},
    ]
    together = {name: getattr(ROLLART, name) for name in set().union(*changed)}
    assert structs.replace(AREAL, name="rollart", **together) == ROLLART


@pytest.mark.parametrize("model", ["qwen3-8b", "qwen3-14b", "qwen3-32b"])
def test_scaled_clusters_keep_their_proportions(model):
    tp = model_shape(model).tp
    for devices in (HOMOGENEOUS, MIXED, {"H800": 72}, {"H20": 208}):
        scenario = mixed_tasks(devices, model=model, scale=8)
        found = {pool.hardware: pool.devices for pool in scenario.pools}
        assert {kind: count * 8 // tp for kind, count in found.items()} == devices
        assert all(count % tp == 0 for count in found.values())
        assert scenario.groups * 8 // tp == 64


def test_gains_come_with_their_spread_over_the_seeds():
    rows = list(trajectories(Settings(batch=16, seeds=(0, 1))))
    gains = [row.gain for row in rows]
    assert gains == sorted(gains)
    for row in rows:
        least, most = row.spread
        assert 1.0 < least < row.gain < most
        assert row.gain == pytest.approx((least + most) / 2)
