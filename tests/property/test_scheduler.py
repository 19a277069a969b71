"""What the scheduler promises under every policy, whatever happens in whatever order.

`ARTANGRAM_PROPERTIES=thorough` tries twenty times as many examples, new ones in every run.
"""

import os
import subprocess
import sys

import pytest
from hypothesis.stateful import run_state_machine_as_test
from scheduler_machine import machine
from scheduler_world import examples

POLICIES = [
    "elastic",
    "tangram",
    "fcfs",
    "fixed:4",
    "pods:1",
    "pods:0.5/4",
    "overcommit",
    "static",
    "load-per-call",
    "unmanaged",
]


@pytest.mark.parametrize("name", POLICIES)
def test_the_scheduler_keeps_its_promises(name):
    run_state_machine_as_test(machine(name), settings=examples(25))


A_DAY = """
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler
from builders import an_action
from scheduler_world import ELASTIC, OTHERS, RIGID, SEVERAL, a_full_cluster
from virtual_time import played

shapes = RIGID + ELASTIC + SEVERAL + OTHERS
for name in ("elastic", "tangram", "pods:1"):
    arrivals, run_s = [], {}
    for n in range(300):
        needs, elastic, service = shapes[n * 7 % len(shapes)]
        fields = {"job": "xyz"[n % 3], "work_s": 0.1 + n * 13 % 7}
        action = an_action(f"a{n}", needs, elastic=elastic, service=service, **fields)
        arrivals.append((n * 0.3, action))
        run_s[f"a{n}"] = 0.2 + n * 11 % 5
    scheduler = Scheduler(a_full_cluster(2, 8, numa=2, penalty=0.1), policy(name))
    print(played(scheduler, arrivals, run_s=run_s))
"""


def test_the_same_events_give_the_same_decisions_in_every_process():
    """Nothing depends on the order in which Python happens to hash strings."""
    tests = os.pathsep.join(filter(None, sys.path))
    said = {
        subprocess.run(
            [sys.executable, "-c", A_DAY],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": tests},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    (only,) = said
    assert only.count("ActionRecord(") == 3 * 300
