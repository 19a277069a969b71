"""SWE-ReX's own `tests/test_execution.py` against our wire, and our deployment."""

import subprocess
import sys
import tarfile
from pathlib import Path
from shutil import copyfile

import pytest

pytest.importorskip("swerex", reason="`make test-peers` installs it")

from swerex.exceptions import DeploymentNotStartedError, NonZeroExitCodeError
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest

import artangram
from artangram.integrations.swerex import TrajectoryDeployment

ARCHIVE = Path(sys.prefix) / "src" / "swe_rex-1.4.0.tar.gz"
HOST_FILES = ("test_read_write_file", "test_read_large_file")
"""They look at the host's `tmp_path`, where a sandbox writes nothing."""
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.timeout(900)
@pytest.mark.skipif(not ARCHIVE.exists(), reason="`make test-peers` brings SWE-ReX's tests")
def test_its_own_tests_of_execution_pass(tmp_path: Path):
    suite = tmp_path / "suite"
    suite.mkdir()
    with tarfile.open(ARCHIVE) as archive:
        theirs = archive.extractfile("swe_rex-1.4.0/tests/test_execution.py")
        (suite / "test_execution.py").write_bytes(theirs.read())
    copyfile(Path(__file__).parent / "swerex_fixtures.py", suite / "conftest.py")
    (suite / "__init__.py").touch()
    (suite / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\ntimeout = 120\nasyncio_default_test_loop_scope = session\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-k", " and ".join(f"not {name}" for name in HOST_FILES)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=suite, check=False)
    print(ran.stdout[-300:])
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "2 deselected" in ran.stdout


async def test_a_deployment_opens_a_trajectory_and_closes_it():
    async with artangram.local(cores=1, memory_mb=1024) as client:
        deployment = TrajectoryDeployment(lambda: client.trajectory(memory_mb=256))
        with pytest.raises(DeploymentNotStartedError):
            await deployment.is_alive()
        await deployment.start()
        assert await deployment.is_alive()
        runtime = deployment.runtime
        await runtime.create_session(CreateBashSessionRequest())
        await runtime.run_in_session(BashAction(command="cd /tmp; export A=1"))
        told = await runtime.run_in_session(BashAction(command="pwd; echo $A"))
        assert told.output == "/tmp\n1\n"
        long = "echo " + "x" * 10_000 + "; false"
        told = await runtime.run_in_session(BashAction(command=long, check="silent"))
        assert (len(told.output), told.exit_code) == (10_001, 1)
        with pytest.raises(NonZeroExitCodeError, match="exit code 3"):
            await runtime.execute(Command(command="exit 3", shell=True, check=True))
        await deployment.stop()
        assert (await client.status()).trajectories == 0
