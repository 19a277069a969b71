"""`simulate` and `plan` with the trace of a running service."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from artangram.observe.journalfile import open_journal
from artangram.observe.recording import JOURNAL
from artangram.orchestrator.server import serving
from artangram.testing.fakes import a_setup, fake_cluster

MAIN = "from artangram.cli import main; main()"
TOKEN = "a-token-of-this-test"
CLUSTER = "pools:\n  cpu: {kind: cpu, nodes: 1, cores: 4, memory_mb: 8192}\n"


async def verb(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, *words]
    return await asyncio.to_thread(
        subprocess.run, argv, cwd=place, capture_output=True, text=True, timeout=120
    )


async def test_a_service_that_runs_gives_its_trace_to_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    journal, _ = await open_journal(tmp_path / JOURNAL)
    setup = a_setup(cores=4, memory_mb=8192, policy="fcfs")
    async with (
        fake_cluster(setup, journal=journal) as cluster,
        serving(cluster.orchestrator, token=TOKEN) as url,
    ):
        reach = ["simulate", "--cluster", "cluster.yaml", "--trace", url, "--token", TOKEN]
        early = await verb(*reach, place=tmp_path)
        assert early.returncode == 2
        assert "trace:" in early.stderr  # Nothing has ended yet: said in one line.
        assert "Traceback" not in early.stderr
        async with cluster.trajectory(memory_mb=100) as t:
            for _ in range(3):
                await t.run(["sleep", "0.01"], kind="tests")
        told = await verb(*reach, "--json", "-", place=tmp_path)
        assert told.returncode == 0, told.stderr
        found = json.loads(told.stdout)
        assert found["actions"] == 3
        assert found["by_kind"]["tests"]["count"] == 3
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/trace") as answer:
            assert answer.status == 401
    await journal.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://"])
async def test_an_address_without_a_service_is_said_in_one_line(tmp_path: Path, url: str) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    told = await verb("simulate", "--cluster", "cluster.yaml", "--trace", url, place=tmp_path)
    assert told.returncode == 2
    assert len(told.stderr.strip().splitlines()) == 1
