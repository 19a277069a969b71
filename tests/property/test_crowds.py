"""What holds for a few holds for hundreds that wait at once: long walks of the same machine.

Hypothesis tells short stories. What is counted, tidied or forgotten in a crowd needs long ones.
"""

from random import Random

import pytest
from scheduler_machine import ENDS, GAPS, SchedulerMachine, machine
from scheduler_world import ELASTIC, OTHERS, RIGID, SEVERAL, THOROUGH

from artangram.core.scheduling.action import Outcome

POLICIES = [
    *("elastic", "tangram", "fcfs", "fixed:2", "pods:1"),
    *("overcommit", "static", "load-per-call", "unmanaged"),
]
CROWD = 400
STEPS = 600


def come(walker: SchedulerMachine, rng: Random) -> None:
    """Several of one kind, unless there is a crowd."""
    if len(walker.books.lives) >= CROWD:
        return
    place, job, repeatable = rng.randrange(6), rng.choice("xxyz"), rng.random() < 0.5
    if rng.random() < 0.5:
        shapes, work_s = rng.choices(RIGID + ELASTIC, k=5), rng.choice([None, 0.05, 30.0, 1000.0])
        walker.submit_cores(shapes, place, job, work_s, repeatable)
    else:
        shapes = rng.choices(OTHERS + 3 * SEVERAL, k=5)
        walker.submit_others(shapes, place, job, rng.choice([0.05, 30.0]), repeatable)


def end(walker: SchedulerMachine, rng: Random) -> None:
    for _ in range(rng.choice([1, 2])):
        if walker.books.running():
            walker.finish(rng.randrange(1000), rng.choice([*ENDS, *[Outcome.SUCCEEDED] * 4]))


def cancel(walker: SchedulerMachine, rng: Random) -> None:
    for _ in range(rng.choice([1, 1, 20])):
        if walker.books.lives:
            walker.cancel(rng.randrange(1000))


def live_on(walker: SchedulerMachine, rng: Random) -> None:
    walker.open_trajectory(rng.choice([0, 10, 40, 70, 100]))
    if len(walker.open) > 5:
        walker.close_trajectory(rng.randrange(1000))


def tick(walker: SchedulerMachine, rng: Random) -> None:
    walker.pass_time(rng.choice(GAPS))
    walker.tick_after_a_pass()


def break_down(walker: SchedulerMachine, rng: Random) -> None:
    if walker.lost:
        walker.join_a_node(False)
        return
    for _ in range(rng.choice([1, 1, len(walker.books.nodes)])):
        walker.lose_a_node(rng.randrange(1000))


DEEDS = {come: 45, end: 20, cancel: 8, live_on: 6, tick: 20, break_down: 6}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(40 if THOROUGH else 2))
def test_promises_hold_in_a_crowd(name: str, seed: int):
    rng, walker = Random(seed), machine(name)()
    walker.build(nodes=3, cores=8, numa=2, penalty=0.1, memory_mb=[10, 40])
    for deed in rng.choices(list(DEEDS), list(DEEDS.values()), k=STEPS):
        deed(walker, rng)
    walker.promises_hold()
    walker.teardown()
