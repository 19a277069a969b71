"""The whole way: a suite in a real sandbox gives a core to another action and gets it back."""

import asyncio
import json
import os
import subprocess
import sys
import sysconfig

import pytest
from busy_machine import PATIENCE_S

from artangram.envs.elastictest import command, one_file
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.local import local
from artangram.orchestrator.options import between
from artangram.sandbox import HostImage, IsolationLevel
from artangram.sandbox.probe import probe

PYTHON = "/usr/bin/python3"
SITE = sysconfig.get_paths()["purelib"]
CODE = """
import pytest, time
@pytest.mark.parametrize("n", range(60))
def test_a(n):
    time.sleep(0.05)
    if n == 5:
        open("begun", "w").close()
"""


def system_python_matches() -> bool:
    """Whether the packages of this interpreter serve the one that sandboxes have."""
    asked = [PYTHON, "-c", "import sys; print(sys.version_info[:2])"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    return said.strip() == str(sys.version_info[:2])


pytestmark = [
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="no namespaces on this machine"
    ),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be divided"),
    pytest.mark.skipif(not system_python_matches(), reason="needs a system Python like ours"),
]


async def made(trajectory: TrajectoryHandle, path: str) -> None:
    """Wait until there is such a file."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await trajectory.read(path)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return


async def test_a_suite_lends_a_core_to_another_action_and_gets_it_back() -> None:
    source = HostImage(also=(SITE,))
    environ = {"PYTHONPATH": SITE, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    argv = command(["-q", "--report=report.json"], python=PYTHON, program="elastic.pyz")
    async with (
        local(cores=2) as client,
        client.trajectory(source=source) as suite,
        client.trajectory() as other,
    ):
        await suite.write("elastic.pyz", one_file())
        await suite.write("test_a.py", CODE)
        running = asyncio.create_task(
            suite.run(argv, cpu=between(1, 2), work_s=60.0, environ=environ)
        )
        await made(suite, "begun")
        await other.run(["sleep", "0.5"])
        result = await running
        report = json.loads(await suite.read("report.json"))
    assert (result.exit_code, report["summary"]["passed"]) == (0, 60)
    assert [width["workers"] for width in report["widths"]] == [2, 1, 2]
