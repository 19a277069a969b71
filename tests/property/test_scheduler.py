"""What the scheduler promises under every policy, whatever happens in whatever order."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from scheduler_machine import machine
from scheduler_world import examples

POLICIES = [
    "elastic",
    "malleable",
    "moldable",
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
    run_state_machine_as_test(machine(name), settings=examples(20))
