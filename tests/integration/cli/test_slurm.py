"""deploy/slurm/artangram.sbatch, with the commands of Slurm played by small scripts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_support import environ, is_alive

from artangram.aio import listening

SCRIPT = Path(__file__).parents[3] / "deploy" / "slurm" / "artangram.sbatch"

ARTANGRAM = f"""#!/bin/sh
exec {sys.executable} -c 'from artangram.cli import main; main()' "$@"
"""
SCONTROL = """#!/bin/sh
printf '127.0.0.1\\nsecond\\n'
"""
SRUN = """#!/bin/sh
echo "$@" >"$TOLD"
while [ "${1#--}" != "$1" ]; do shift; done
echo $$ >"$AGENT_PID"
exec "$@" --node second
"""
COMMAND = """
import os, time
import artangram.sync

with artangram.sync.connect(os.environ["ARTANGRAM_URL"], token=os.environ["ARTANGRAM_TOKEN"]) as c:
    while "second" not in {node.node for node in c.status().nodes}:
        time.sleep(0.1)
    c.drain("cpu-0")
    with c.trajectory(memory_mb=64) as t:
        done = t.run(["echo", "worked"])
        print(done.stdout, done.outcome, done.reason)
assert "ARTANGRAM_JOIN_TOKEN" not in os.environ
raise SystemExit(7)
"""


def free_port() -> str:
    with listening("127.0.0.1", 0) as taken:
        return str(taken.getsockname()[1])


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on two machines."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"artangram": ARTANGRAM, "scontrol": SCONTROL, "srun": SRUN}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return environ(
        PATH=f"{programs}:{os.environ['PATH']}",
        SLURM_JOB_ID="7",
        SLURM_JOB_NODELIST="127.0.0.1,second",
        SLURM_JOB_NUM_NODES="2",
        ARTANGRAM_STATE_DIR=str(tmp_path / "state"),
        ARTANGRAM_PORT=free_port(),
        ARTANGRAM_AGENTS_PORT=free_port(),
        TOLD=str(tmp_path / "told"),
        AGENT_PID=str(tmp_path / "pid"),
    )


def test_the_command_uses_the_agents_and_everything_ends_with_it(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    ended = subprocess.run(
        ["bash", SCRIPT, sys.executable, "-c", COMMAND],
        env=slurm,
        text=True,
        capture_output=True,
        timeout=240,
        umask=0o077,  # As many clusters set it.
        check=False,
    )
    assert ended.returncode == 7, ended.stderr
    assert "worked\n" in ended.stdout
    told = (tmp_path / "told").read_text()
    assert "--nodes=1 --ntasks-per-node=1 --exclude=127.0.0.1" in told
    assert "Drained." in (tmp_path / "state" / "head.log").read_text()
    give_up_at = time.monotonic() + 30
    while is_alive(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def test_a_head_that_cannot_start_ends_the_job_and_says_why(slurm: dict[str, str]) -> None:
    with listening("127.0.0.1", 0) as taken:
        slurm["ARTANGRAM_PORT"] = str(taken.getsockname()[1])
        ended = subprocess.run(
            ["bash", SCRIPT, "true"],
            env=slurm,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 1
    assert "error: " in ended.stderr
