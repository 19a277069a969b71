"""What all sandboxes of a machine share and the kernel divides among no groups: process numbers,
open files.

- Processes that are kept between commands take them for as long as their sandbox lives. When a part
  is taken, no command that may keep more is started: the rest is for what runs.
- A program that fails while the machine has none of them left may have failed for that, so its
  end says nothing about it.
"""

from __future__ import annotations

from pathlib import Path

from artangram.sandbox.errors import SandboxError
from artangram.sandbox.protocol import CommandResult

MOST_KEPT = 0.25
"""Of the process numbers, for all sandboxes at rest and what is about to be kept."""
MOST_KEPT_FILES = 0.5
ALMOST_ALL = 0.95
USUAL_PROCESSES = 256
"""Of one sandbox; a program that failed for want of one may have had all the others."""
_PROC = Path("/proc")


class MachineRoom:
    """`group` counts the processes of all sandboxes of a provider; `None` if no group does."""

    def __init__(self, group: Path | None, *, proc: Path = _PROC) -> None:
        self._group = group
        self._proc = proc

    def check_kept(self) -> None:
        """Raises `SandboxError` if no further process may be kept."""
        taken, most = self._own_processes()
        if taken >= MOST_KEPT * most:
            problem = f"sandboxes have {taken} of the {most} processes of this machine"
            raise SandboxError(f"{problem}, too many to keep more; close some of them")
        files, most_files = self._files()
        if files >= MOST_KEPT_FILES * most_files:
            problem = f"{files} of the {most_files} files of this machine are open"
            raise SandboxError(f"{problem}, too many to keep processes; close some sandboxes")

    def judged(self, failed: CommandResult) -> CommandResult | SandboxError:
        """How a program failed, or that this machine may be to blame for it."""
        try:
            lack = "" if failed.timed_out else self._lack()
        except OSError as error:  # This process may be the one that has no file left.
            return SandboxError(f"it failed while this machine could not be asked why: {error}")
        return SandboxError(f"it failed while this machine ran out of {lack}") if lack else failed

    def _lack(self) -> str:
        """What this machine has used up; empty if it has some of everything."""
        threads = int(self._read("loadavg").split()[3].split("/")[1])
        for taken, most in (self._own_processes(), (threads, self._most_processes())):
            if most - taken <= min(USUAL_PROCESSES, most // 8):
                return "processes"
        files, most_files = self._files()
        return "open files" if files >= ALMOST_ALL * most_files else ""

    def _own_processes(self) -> tuple[int, int]:
        """How many there are in sandboxes, and the most that there may be."""
        if self._group is None:
            return 0, self._most_processes()
        limits = [self._most_processes()]
        for group in (self._group, *self._group.parents):
            path = group / "pids.max"
            if not path.exists():
                break
            text = path.read_text().strip()
            limits += [int(text)] if text.isdecimal() else []
        return int((self._group / "pids.current").read_text()), max(1, min(limits))

    def _most_processes(self) -> int:
        names = ("pid_max", "threads-max")
        return min(int(self._read(f"sys/kernel/{name}")) for name in names)

    def _files(self) -> tuple[int, int]:
        open_now, _, most = self._read("sys/fs/file-nr").split()
        return int(open_now), int(most)

    def _read(self, name: str) -> str:
        return (self._proc / name).read_text()
