"""Control groups of version 2, on a kernel that has their controllers: a user-mode Linux.

A machine's controllers belong to one version at a time, and those of most containers and of the
machines of continuous integration to the first. A user-mode Linux is a kernel that runs as a
process and mounts the second. It is installed if need be; where it cannot be, this says so and
skips.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from artangram.sandbox.namespace.compiled import BuildFailed, build

FIRST_PROCESS = Path(__file__).with_name("first_process.py")
INSTALL_ENGINE = Path(__file__).parents[2] / "install_engine.sh"
SOURCE = Path(__file__).parents[3] / "src"
MODULES = Path("/usr/lib/uml/modules")
BOOT_TIMEOUT_S = 240


def kernel() -> str:
    command = ["sh", INSTALL_ENGINE, "kernel"]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    found = shutil.which("linux.uml")
    if found is None:
        pytest.skip(f"no kernel with control groups of version 2: {installed.stderr[-500:]}")
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    program = kernel()  # Brings the modules, too.
    state_dir = tmp_path_factory.mktemp("state")
    with suppress(BuildFailed):  # Then Python serves there.
        asyncio.run(build(state_dir))
    overlay = next(MODULES.glob("*/kernel/fs/overlayfs/overlay.ko"), "")
    files = "root=none rootfstype=hostfs rootflags=/ ro mem=1G con=null con0=null,fd:1 quiet"
    done = subprocess.run(
        [
            program,
            *files.split(),
            f"PYTHONPATH={SOURCE}",
            "PYTHONDONTWRITEBYTECODE=1",
            f"init={sys.executable}",
            "--",
            str(FIRST_PROCESS),
            str(overlay),
            str(state_dir),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOOT_TIMEOUT_S,
        check=False,
    )
    told = [line for line in done.stdout.decode().splitlines() if line.startswith("FOUND ")]
    assert told, done.stdout.decode()[-2000:]
    result: dict[str, Any] = json.loads(told[0].removeprefix("FOUND "))
    assert "problem" not in result, result["problem"]
    return result


def test_controllers_are_handed_down_from_a_group_that_has_processes(found: dict[str, Any]) -> None:
    assert (found["level"], found["detail"]) == ("CGROUPS", "version 2, freezer of version 2")


def test_memory_and_processes_of_a_sandbox_are_limited(found: dict[str, Any]) -> None:
    assert found["out_of_memory"] == [True, False]
    assert 48 <= found["peak_mb"] <= 64
    assert 10 <= found["forks"] <= 20


def test_kept_processes_are_frozen(found: dict[str, Any]) -> None:
    assert found["frozen"]


def test_without_a_cpuset_cores_are_held_by_affinity(found: dict[str, Any]) -> None:
    assert found["cores"] == "1"


def test_nothing_is_left_but_the_group_we_moved_to(found: dict[str, Any]) -> None:
    assert found["left"] == ["artangram-cluster"]


def test_no_crash_starts_a_program_of_the_machine(found: dict[str, Any]) -> None:
    """A core that is piped to a program knows no limit but one: of a single byte."""
    assert found["dumped"] == [False, False]


def test_no_call_makes_the_kernel_look_for_a_module(found: dict[str, Any]) -> None:
    """It would start a program by root, outside of any limit, and what it loads is less tried."""
    assert found["asked"] == {"protocols": [], "tables": [], "questions": []}
