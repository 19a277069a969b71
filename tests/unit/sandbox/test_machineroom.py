"""What is left of process numbers and open files, by the kernel's counts."""

from pathlib import Path

import pytest

from artangram.sandbox.errors import SandboxError
from artangram.sandbox.namespace.machineroom import MachineRoom
from artangram.sandbox.protocol import CommandResult

FAILED = CommandResult(exit_code=1)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    for name in ("sys/kernel", "sys/fs"):
        (proc / name).mkdir(parents=True)
    (proc / "sys/kernel/pid_max").write_text("32768\n")
    (proc / "sys/kernel/threads-max").write_text("100000\n")
    (proc / "sys/fs/file-nr").write_text("9000\t0\t2000000\n")
    (proc / "loadavg").write_text("1.0 1.0 1.0 2/900 77\n")
    return proc


@pytest.fixture
def group(tmp_path: Path) -> Path:
    group = tmp_path / "above" / "sandboxes"
    group.mkdir(parents=True)
    (group.parent / "pids.max").write_text("max\n")
    (group / "pids.max").write_text("max\n")
    (group / "pids.current").write_text("100\n")
    return group


def test_a_machine_with_room_leaves_a_failure_to_its_program(proc: Path, group: Path) -> None:
    room = MachineRoom(group, proc=proc)
    room.check_kept()
    assert room.judged(FAILED) is FAILED


def test_nothing_more_is_kept_when_a_quarter_of_the_numbers_is_taken(
    proc: Path, group: Path
) -> None:
    (group / "pids.current").write_text("8192\n")
    with pytest.raises(SandboxError, match="have 8192 of the 32768 processes of this machine"):
        MachineRoom(group, proc=proc).check_kept()
    (group.parent / "pids.max").write_text("40000\n")
    (group / "pids.current").write_text("8191\n")
    MachineRoom(group, proc=proc).check_kept()
    (group.parent / "pids.max").write_text("30000\n")
    with pytest.raises(SandboxError, match="of the 30000 processes"):
        MachineRoom(group, proc=proc).check_kept()


def test_nothing_more_is_kept_when_half_of_the_files_are_open(proc: Path, group: Path) -> None:
    (proc / "sys/fs/file-nr").write_text("1000000\t0\t2000000\n")
    with pytest.raises(SandboxError, match="1000000 of the 2000000 files"):
        MachineRoom(group, proc=proc).check_kept()


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_failure_on_a_machine_without_numbers_is_nobodys(
    proc: Path, group: Path, is_counted: bool
) -> None:
    (proc / "loadavg").write_text("1.0 1.0 1.0 2/32600 77\n")
    judged = MachineRoom(group if is_counted else None, proc=proc).judged(FAILED)
    assert isinstance(judged, SandboxError)
    assert "ran out of processes" in str(judged)


def test_a_failure_on_a_machine_without_files_is_nobodys(proc: Path, group: Path) -> None:
    (proc / "sys/fs/file-nr").write_text("1990000\t0\t2000000\n")
    assert "ran out of open files" in str(MachineRoom(group, proc=proc).judged(FAILED))
    late = CommandResult(exit_code=137, timed_out=True)
    assert MachineRoom(group, proc=proc).judged(late) is late
