"""The same promises one level down, for a user without any right: conformance and attacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="package")

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
SHOW = "import sys; print(sys.version_info[:2], sys.implementation.cache_tag)"


def system_python_matches() -> bool:
    if os.getuid() != 0 or not Path(SYSTEM_PYTHON).exists() or not shutil.which("setpriv"):
        return False
    shown = [
        subprocess.run([python, "-c", SHOW], capture_output=True, check=True).stdout
        for python in (SYSTEM_PYTHON, sys.executable)
    ]
    return shown[0] == shown[1]


@pytest.mark.skipif(not system_python_matches(), reason="needs root and a system Python like ours")
async def test_conformance_holds_for_nobody() -> None:
    # Not in pytest's own directory, which pytest closes to other users.
    with tempfile.TemporaryDirectory(prefix="artangram-nobody-") as home:
        os.chown(home, NOBODY, NOBODY)
        done = run_as_nobody(home)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout


def run_as_nobody(home: str) -> subprocess.CompletedProcess[str]:
    tree = Path(__file__).resolve().parents[3]
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{tree / 'src'}:{sysconfig.get_path('purelib')}",
    }
    become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    # Bombs and cores are held by control groups, which a user without rights does not have.
    chosen = (
        "namespace or TestFiles or TestKernel or TestNetwork or TestInit"
        " or (seccomp_provider and (leftovers or snapshot or files or deadline or result))"
    )
    options = ("-q", "-p", "no:cacheprovider", f"--rootdir={tree}", "-k", chosen)
    suites = [
        tree / "tests/conformance/test_sandbox.py",
        Path(__file__).with_name("test_attacks.py"),
    ]
    return subprocess.run(
        [*become, SYSTEM_PYTHON, "-m", "pytest", *options, *suites],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
