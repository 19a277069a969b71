"""Whatever is killed while a model trains: training goes on, and every problem has one account."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.connect import connect
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe
from integration.pipeline.clusterwork import MARK, READ, SERVICE
from integration.pipeline.processes import below, sandbox_of
from integration.pipeline.served import (
    TOKEN,
    Served,
    actions,
    balanced,
    finished,
    killed,
    until,
)

pytestmark = [
    pytest.mark.timeout(900),  # Of a machine that does much else; seven processes start here.
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="this machine cannot make namespaces"
    ),
]

STEPS = 14
GROUPS, GROUP_SIZE = 4, 4


def an_environment(up):
    """Kill a sandbox in the middle of a turn."""

    def is_killed():
        for pid in below(up.pid, MARK):
            with suppress(ProcessLookupError):  # A turn is over in a moment.
                if (sandbox := sandbox_of(pid)) is not None:
                    killed(sandbox)
                    return True
        return False

    until(is_killed, up)


def the_supervisor(up):
    """Kill the node agent, under which every sandbox lives."""
    (agent,) = below(up.pid, "managers.agentprocess")
    killed(agent)


def the_service(url):
    """Kill the process that answers."""

    async def ask():
        async with connect(url, token=TOKEN) as client:
            return await client.call(SERVICE, {"said": "", "right": ""})

    killed(asyncio.run(ask())["pid"])


def the_engine(run):
    (engine,) = below(run.pid, "torchworker")
    killed(engine)


async def left_open(url):
    async with connect(url, token=TOKEN) as client:
        status = await client.status()
    return status.queued, status.running, status.trajectories


def test_everything_is_killed_in_turn_and_every_problem_is_accounted_for(tmp_path, model):
    with Served(tmp_path, model) as served:
        up = served.up()
        run = served.train("first", *served.service, steps=STEPS)
        served.wait_for_steps("first", 1, run)
        an_environment(up)
        served.wait_for_steps("first", 3, run)
        the_supervisor(up)
        served.wait_for_steps("first", 5, run)
        the_service(served.url)
        served.wait_for_steps("first", 7, run)
        the_engine(run)
        served.wait_for_steps("first", 9, run)
        run.kill()
        run.wait()
        run = served.train("first", *served.service, steps=STEPS, resume=True)
        served.wait_for_steps("first", 11, run)
        up.kill()
        up.wait()
        up = served.up()
        assert finished(run) == 0
        assert asyncio.run(left_open(served.url)) == (0, 0, 0)
    check_accounts(served)


def check_accounts(served):
    records, position = served.records("first"), served.position("first")
    assert [record.step for record in records] == list(range(1, STEPS + 1))
    # Whole groups of attempts that were scored, and each problem at most once.
    assert {record.report.trajectories for record in records} == {GROUPS * GROUP_SIZE}
    assert position.settled == STEPS * GROUPS
    assert balanced(position)
    assert position.dropped == {}
    check_problems([problem for record in records for problem in record.problems], position)
    assert max(record.lost_engines for record in records) == 1
    submitted, reported = actions(served.state)
    assert set(submitted.values()) == {1}
    assert {action: len(records) for action, records in reported.items()} == submitted
    # Reading is not repeatable, so it never ran twice, not even asked twice; a service may be.
    reads = [record for (record,) in reported.values() if record.kind == READ]
    assert {record.attempts for record in reads} == {1}
    assert set(Counter(record.trajectory for record in reads).values()) == {1}
    outcomes = Counter(record.outcome for (record,) in reported.values())
    assert outcomes[Outcome.INFRA_FAILED] >= 1
    assert outcomes[Outcome.FAILED] == 0


def check_problems(trained, position):
    """By name: none twice, none lost. Those that were not trained on are still to come."""
    drawn = [f"words/{number + 1}" for number in range(position.drawn)]
    to_come = {drawn[index] for index in position.outstanding}
    assert len(trained) == len(set(trained))
    assert set(trained) == set(drawn) - to_come
