"""A real cluster: namespaces, cores and files of this machine."""

import asyncio
import os
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S, at_best

from artangram.core.errors import BadInput
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import local
from artangram.orchestrator.options import between
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe

pytestmark = [
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="no namespaces on this machine"
    ),
]

CORES = len(os.sched_getaffinity(0))


async def test_the_example_of_the_front_page() -> None:
    async with local() as client, client.trajectory(job="demo", task="swe", memory_mb=512) as t:
        await t.write("x.sh", b"echo $ARTANGRAM_UNITS {units} $1")
        result = await t.run(["sh", "x.sh", "{units}"], cpu=between(1, 8), kind="swe/test")
        assert result.stdout == f"{CORES} {{units}} {CORES}\n"
        assert result.record.units == CORES
        await t.run(["sh", "-c", "echo kept > y"])
        assert await t.read("y") == b"kept\n"


async def test_program_errors_and_limits_are_results() -> None:
    async with local() as client, client.trajectory(memory_mb=128) as t:
        assert (await t.run(["sh", "-c", "exit 3"])).exit_code == 3

        async def late() -> float:
            result = await t.run(["sleep", "10"], timeout_s=0.2)
            assert (result.outcome, result.run_s >= 0.2) == (Outcome.TIMED_OUT, True)
            return result.run_s

        await at_best(late, below=0.5)
        missing = await t.run(["no-such-program"])
        assert (missing.outcome, missing.exit_code) == (Outcome.FAILED, 127)


@pytest.mark.skipif(
    probe().level < IsolationLevel.CGROUPS, reason="memory is limited by process here"
)
async def test_an_action_may_have_less_than_its_trajectory() -> None:
    eater = ["python3", "-c", "bytearray(40 << 20); print('ate')"]
    async with local() as client, client.trajectory(memory_mb=128, processes=64) as t:
        hungry = await t.run(eater, memory_mb=32)
        assert (hungry.outcome, hungry.reason) == (Outcome.FAILED, "it ran out of memory")
        alone = await t.run(["sh", "-c", "true & wait; echo forked"], processes=1)
        assert "forked" not in alone.stdout
        assert (await t.run(eater)).stdout == "ate\n"
        with pytest.raises(BadInput, match="memory_mb: 129 is more than its sandbox may use"):
            await t.run(["true"], memory_mb=129)


HOARD = """
import itertools, os
try:
    for n in itertools.count():
        os.close(os.open(f"{n}", os.O_CREAT | os.O_WRONLY))
except OSError as error:
    print(error.strerror, flush=True)
os.execvp("sh", ["sh", "-c", "cat /dev/zero > 0"])
"""


@pytest.mark.parametrize("memory_mb", [16, 64])
async def test_who_fills_its_disk_with_names_and_bytes_can_still_be_used(memory_mb: int) -> None:
    async with local() as client, client.trajectory(memory_mb=memory_mb) as t:
        full = await t.run(["python3", "-c", HOARD])
        assert (full.stdout, full.exit_code) == ("No space left on device\n", 1)
        assert "No space left on device" in full.stderr
        with pytest.raises(OSError, match="No space left on device"):
            await t.write("more", bytes(memory_mb << 18))
        assert (await t.run(["sh", "-c", "rm *; echo more"])).stdout == "more\n"


@pytest.mark.skipif(CORES < 2, reason="one core cannot be divided")
async def test_a_running_action_really_gets_other_cores() -> None:
    async with (
        local(cores=2) as client,
        client.trajectory() as wide,
        client.trajectory() as narrow,
    ):
        await wide.write("now", b"")
        await narrow.write("now", b"")
        script = "while ! [ -e stop ]; do nproc > next; mv next now; sleep 0.02; done"
        argv = ["sh", "-c", script]
        first = asyncio.create_task(wide.run(argv, cpu=between(1, 2), work_s=60.0))
        await sees(wide, b"2\n")
        second = asyncio.create_task(narrow.run(argv))
        await sees(wide, b"1\n")
        await sees(narrow, b"1\n")
        await narrow.write("stop", b"")
        assert (await second).ok
        await sees(wide, b"2\n")
        await wide.write("stop", b"")
        assert (await first).ok


async def sees(trajectory: TrajectoryHandle, cores: bytes) -> None:
    """Return when what runs in `trajectory` has found that it has so many cores."""
    async with asyncio.timeout(PATIENCE_S):
        while await trajectory.read("now") != cores:  # noqa: ASYNC110 - a program tells nobody
            await asyncio.sleep(0.02)


async def test_closing_the_cluster_leaves_no_process(tmp_path: Path) -> None:
    async with local(state_dir=tmp_path) as client, client.trajectory() as t:
        assert (await t.run(["true"])).ok
        assert (tmp_path / "agent.sock").exists()
    assert not (tmp_path / "agent.sock").exists()


async def test_a_cluster_with_nothing_alive_takes_other_cores_and_shares(tmp_path: Path) -> None:
    async with local(cores=1, state_dir=tmp_path) as client, client.trajectory() as t:
        assert (await t.run(["true"])).ok
    shares = {"urgent": 3.0}
    async with local(policy="fcfs", state_dir=tmp_path, shares=shares) as client:
        assert isinstance(client.backend, Embedded)
        assert client.backend.orchestrator.setup.cluster.shares == shares
        assert (await client.status()).ended == 1
        async with client.trajectory(job="urgent") as t:
            assert (await t.run(["nproc"], cpu=CORES)).stdout == f"{CORES}\n"


async def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"jobs\.idle\.share: 0\.0 is not a share; give a number above 0"
    ):
        async with local(shares={"idle": 0.0}):
            pass
