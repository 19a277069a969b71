"""Accounts stay small, survive a restart, and say what alternatives would have cost."""

import asyncio
from pathlib import Path

import pytest

from artangram.apis.usage import tokens_in
from artangram.core.errors import BadInput
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.scheduling.events import TrajectoryOpened
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.accounts import MOST_ACCOUNTS, OTHER, Accounts
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.prometheus import MOST_JOBS, Exposition
from artangram.orchestrator.records import ClusterStatus
from artangram.orchestrator.use import (
    JobUse,
    Prices,
    UseReport,
    alternatives,
    by_job,
    parse_prices,
)
from artangram.testing.fakes import fake_cluster


def a_report(*rows: JobUse, peak_cores: int = 10) -> UseReport:
    return UseReport(began_at=0.0, at=3600.0, cores=4, peak_cores=peak_cores, rows=rows)


async def test_a_cluster_says_what_jobs_used() -> None:
    async with fake_cluster() as client:
        async with client.trajectory(job="red", task="swe", memory_mb=100) as t:
            await t.run(["sleep", "0.2"])
            await t.run(["false"])
        async with client.trajectory(job="blue", memory_mb=100) as t:
            await t.run(["sleep", "0.1"])
            report = await client.use()
    red, blue = report.rows
    assert (red.job, red.task, red.actions, red.failed, red.trajectories) == ("red", "swe", 2, 1, 1)
    assert (blue.job, blue.actions, blue.failed) == ("blue", 1, 0)
    assert 0.2 <= red.core_s < red.memory_mb_s / 100 + 0.01
    assert red.pod_core_s >= red.core_s
    assert report.cores == 2
    assert report.total.actions == 3


async def test_what_runs_is_counted() -> None:
    async with fake_cluster() as client, client.trajectory(job="red") as t:
        running = asyncio.create_task(t.run(["sleep", "30"]))
        await asyncio.sleep(0.3)
        first = (await client.use()).rows[0]
        await asyncio.sleep(0.1)
        second = (await client.use()).rows[0]
        running.cancel()
    assert first.actions == 0
    assert 0.1 < first.core_s < second.core_s
    assert 0 < first.memory_mb_s < second.memory_mb_s


async def test_accounts_survive_a_restart(tmp_path: Path) -> None:
    path, seen = tmp_path / "journal.sqlite", []
    for _ in range(3):  # The second life goes on from a snapshot, the third from entries.
        journal, past = await open_journal(path)
        bounds = Bounds(compact_every=5)
        async with fake_cluster(journal=journal, past=past, bounds=bounds) as client:
            async with client.trajectory(job="red", task="swe") as t:
                for _ in range(3):
                    await t.run(["sleep", "0.05"])
            seen.append((await client.use()).rows[0])
        await journal.close()
    assert [row.actions for row in seen] == [3, 6, 9]
    assert seen[2].core_s > seen[1].core_s > seen[0].core_s >= 0.15
    assert {(row.job, row.task) for row in seen} == {("red", "swe")}


def test_many_jobs_share_one_account() -> None:
    accounts = Accounts()
    for number in range(2 * MOST_ACCOUNTS):
        opened = TrajectoryOpened(TrajectoryId(f"t{number}"), 1, JobId(f"job-{number}"))
        accounts.opened(opened, "", 0.0)
    accounts.opened(TrajectoryOpened(TrajectoryId("t"), 1, JobId("x" * 1000)), "", 0.0)
    report = accounts.report((), cores=1, now=1.0)
    assert len(report.rows) == MOST_ACCOUNTS + 1
    assert (report.rows[-1].job, report.rows[-1].trajectories) == (OTHER, MOST_ACCOUNTS + 1)


IDLE = ClusterStatus(
    policy="elastic",
    queued=0,
    running=0,
    trajectories=0,
    ended=0,
    uptime_s=0.0,
    is_draining=False,
    nodes=(),
)


def test_metrics_of_jobs_are_bounded_and_complete() -> None:
    rows = [JobUse(job=f"job-{number}", core_s=1.0) for number in range(3 * MOST_JOBS)]
    text = Exposition(lambda: IDLE, use=lambda: a_report(*rows)).text().decode()
    name = "artangram_job_core_seconds_total{"
    lines = [line for line in text.splitlines() if line.startswith(name)]
    assert len(lines) == MOST_JOBS + 1
    assert sum(float(line.split()[-1]) for line in lines) == 3 * MOST_JOBS


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"usage": {"total_tokens": 12, "prompt_tokens": 10}}', 12),
        (b'{"usage": {"input_tokens": 3, "output_tokens": 4}}', 7),
        (b'{"usage": {"total_tokens": -5}}', 0),
        (b'{"usage": "a lot"}', None),
        (b'{"usage": null}', None),
        (b'{"usage": {}}', None),
        (b'{"usage"', None),
        (b"[" * 100_000 + b'"usage"', None),
        (b"plain text", None),
    ],
)
def test_tokens_are_what_an_answer_says(body: bytes, tokens: int | None) -> None:
    assert tokens_in(body) == tokens


def test_prices_make_costs_and_each_alternative_says_why() -> None:
    row = JobUse(job="red", core_s=3600.0, pod_core_s=36_000.0, memory_mb_s=1024 * 3600.0, calls=10)
    prices = parse_prices(["cpu=0.04", "memory=0.01", "call=0.001"])
    ours, pods, sharing = alternatives(a_report(row), prices)
    assert ours.cost == pytest.approx(0.04 + 0.01 + 0.01)
    assert pods.cost == pytest.approx(0.4 + 0.01)
    assert sharing.cost == pytest.approx(0.4 + 0.01 + 0.01)
    assert "10.0 core-seconds held for one used" in pods.reason
    assert "10 wanted at once" in sharing.reason


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "cpu=-1", "cpu=inf", "disk=1", "=1"])
def test_a_wrong_price_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="price"):
        parse_prices([text])


def test_tasks_of_a_job_add_up() -> None:
    rows = [
        JobUse(job="a", task="x", core_s=1.0),
        JobUse(job="b", core_s=5.0),
        JobUse(job="a", task="y", core_s=2.0),
    ]
    assert [(one.job, one.core_s) for one in by_job(rows)] == [("b", 5.0), ("a", 3.0)]
    assert Prices().of(rows[0]) == 0.0
