"""Which cores the running command of a sandbox may use, and how that changes while it runs.

- Version 1: a few slots, each a cpuset, are lent to running commands. Writing a cpuset costs time
  in proportion to their number and to the processes in it, so not every sandbox has one, and where
  there are many sandboxes none stays in one at rest. A few may, if they run one after the other.
- Version 2 has one hierarchy: the sandbox's own group is set as a command begins.
- Without a group for them: affinity, which the filter forbids the sandbox to change.
- A core that is added is not used before the kernel's balancer comes by, tens of milliseconds
  later: `spread` puts running threads on the new cores at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Protocol

from artangram.core.errors import BadInput
from artangram.sandbox.inside.request import REST
from artangram.sandbox.inside.setup import write_setting
from artangram.sandbox.inside.zygote import remove_group
from artangram.sandbox.namespace.cgroups import Groups, SandboxCgroups
from artangram.sandbox.namespace.kernel import processes_below

MAX_SPREAD = 64
"""Beyond this many threads the balancer finds work for a new core by itself."""


def cores_for(groups: Groups | None) -> CoreLender:
    if groups is None or groups.cpuset is None:
        return AffinityCores()
    return GroupCores() if groups.is_v2 else CpusetSlots(groups.cpuset)


def all_cores() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0))


def check_cores(cores: tuple[int, ...], every: frozenset[int]) -> None:
    """Raises `BadInput` for cores that this machine cannot lend."""
    if not every.issuperset(cores):
        problem = f"{as_list(cores)} is not all among the cores of this machine"
        raise BadInput("cores", problem, f"choose from {as_list(tuple(every))}")


def as_list(cores: tuple[int, ...]) -> str:
    return ",".join(str(core) for core in sorted(cores))


def spread(threads: list[int], cores: tuple[int, ...], *, every: frozenset[int]) -> None:
    """Put running threads evenly on `cores`, then let them roam within their cpuset again."""
    running = [tid for tid in threads if _is_running(tid)] if len(threads) <= MAX_SPREAD else []
    for index, tid in enumerate(running):
        _set_affinity(tid, {cores[index % len(cores)]})
    for tid in running:
        _set_affinity(tid, every)


def _is_running(tid: int) -> bool:
    try:
        with open(f"/proc/{tid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"R"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _set_affinity(tid: int, cores: frozenset[int] | set[int]) -> None:
    try:
        os.sched_setaffinity(tid, cores)
    except (ProcessLookupError, OSError):
        return  # it ended meanwhile, or the core is outside its cpuset by now


Numbered = tuple[int, int]
"""A control group's number, and its `tasks` file."""


class Hold(Protocol):
    """The cores of one running command; `groups` are what init has to know, the last to join."""

    @property
    def groups(self) -> tuple[Numbered, ...]: ...

    def resize(self, cores: tuple[int, ...]) -> None: ...

    def release(self) -> None: ...


class CoreLender(Protocol):
    """Lends cores to sandboxes while they run a command."""

    @property
    def num_lent(self) -> int:
        """Slots in use; 0 where the machine offers none."""
        ...

    def lend(self, groups: SandboxCgroups | None, pid: int, *, cores: tuple[int, ...]) -> Hold: ...

    def close(self) -> None: ...


class CpusetSlot:
    """One cpuset of version 1, lent to one running command at a time."""

    def __init__(self, slots: CpusetSlots, number: int, directory: Path) -> None:
        self._slots = slots
        self.directory = str(directory)
        directory.mkdir()
        write_setting(self.directory + "/cpuset.mems", slots.mems)
        self.cores: tuple[int, ...] = ()
        self.holder = 0
        self.set(tuple(slots.every))
        self.tasks = os.open(self.directory + "/tasks", os.O_WRONLY | os.O_CLOEXEC)
        self.groups = (slots.park, (number, self.tasks))

    def set(self, cores: tuple[int, ...]) -> None:
        if cores != self.cores:
            check_cores(cores, self._slots.every)
            write_setting(self.directory + "/cpuset.cpus", as_list(cores))
            self.cores = cores

    def resize(self, cores: tuple[int, ...]) -> None:
        grows = not set(cores) <= set(self.cores)
        self.set(cores)
        if grows:
            # Not all threads in the slot: sandboxes at rest may be in the one they used last.
            threads = threads_below(self.holder, most=MAX_SPREAD + 1)
            spread(threads, cores, every=self._slots.every)

    def release(self) -> None:
        self._slots.free.append(self)


class AnyCore:
    """No cores were named: the sandbox may use every core of its provider."""

    def __init__(self, park: Numbered) -> None:
        self.groups = (park,)

    def resize(self, cores: tuple[int, ...]) -> None:
        raise ValueError("only a command that was started with cores can be resized")

    def release(self) -> None:
        return


class CpusetSlots:
    """Cpuset slots, made when first needed and used again."""

    def __init__(self, cpuset: Path) -> None:
        self._cpuset = cpuset
        self.mems = (cpuset / "cpuset.mems").read_text().strip()
        self.every = all_cores()
        self.free: list[CpusetSlot] = []
        self._slots: list[CpusetSlot] = []
        #: Any core: for commands without cores, and for sandboxes at rest.
        self.park = (REST, os.open(cpuset / "tasks", os.O_WRONLY | os.O_CLOEXEC))

    @property
    def num_lent(self) -> int:
        return len(self._slots) - len(self.free)

    def lend(self, groups: SandboxCgroups | None, pid: int, *, cores: tuple[int, ...]) -> Hold:
        if not cores:
            return AnyCore(self.park)
        slot = self._free_one(cores)
        slot.holder = pid
        try:
            slot.set(cores)
        except BaseException:
            slot.release()
            raise
        return slot

    def _free_one(self, cores: tuple[int, ...]) -> CpusetSlot:
        """One that has these cores already, if possible: writing a cpuset takes long."""
        for index, slot in enumerate(self.free):
            if slot.cores == cores:
                return self.free.pop(index)
        return self.free.pop() if self.free else self._grow()

    def _grow(self) -> CpusetSlot:
        number = len(self._slots) + 1
        slot = CpusetSlot(self, number, self._cpuset / f"slot-{number}")
        self._slots.append(slot)
        return slot

    def close(self) -> None:
        os.close(self.park[1])
        for slot in self._slots:
            os.close(slot.tasks)
            remove_group(slot.directory)


class SandboxCores:
    """Where cores are those of a whole sandbox: the union of what its commands hold."""

    num_lent = 0

    def __init__(self) -> None:
        self._held: dict[int, list[CommonHold]] = {}

    def hold(self, pid: int, hold: CommonHold) -> tuple[int, ...]:
        """One more command of the sandbox of `pid` has cores; returns those of all."""
        self._held.setdefault(pid, []).append(hold)
        return self.all_of(pid)

    def all_of(self, pid: int) -> tuple[int, ...]:
        return tuple(sorted({core for hold in self._held.get(pid, ()) for core in hold.cores}))

    def release(self, pid: int, hold: CommonHold) -> bool:
        """Has none of its commands cores any more?"""
        left = self._held.get(pid, [])
        if hold in left:
            left.remove(hold)
        if not left:
            self._held.pop(pid, None)
        return not left

    def close(self) -> None:
        return


class CommonHold:
    """The cores of one command, which others of its sandbox may use, too."""

    groups = ()
    cores: tuple[int, ...] = ()


class GroupCores(SandboxCores):
    """Version 2: the sandbox's own group has the cores of its commands."""

    def lend(self, groups: SandboxCgroups | None, pid: int, *, cores: tuple[int, ...]) -> Hold:
        assert groups is not None
        return _OwnGroup(self, groups.cpuset, pid, cores or tuple(all_cores()))


class _OwnGroup(CommonHold):
    def __init__(
        self, lender: GroupCores, directory: str, pid: int, cores: tuple[int, ...]
    ) -> None:
        check_cores(cores, all_cores())
        self._lender, self._pid = lender, pid
        self._directory = directory
        self.cores = cores
        try:
            self._set(lender.hold(pid, self))
        except BaseException:
            lender.release(pid, self)
            raise

    def _set(self, cores: tuple[int, ...]) -> None:
        write_setting(self._directory + "/cpuset.cpus", as_list(cores))

    def resize(self, cores: tuple[int, ...]) -> None:
        check_cores(cores, all_cores())
        grows = not set(cores) <= set(self.cores)
        self.cores = cores
        self._set(self._lender.all_of(self._pid))
        if grows:
            with open(self._directory + "/cgroup.threads") as threads:
                spread([int(line) for line in threads], cores, every=all_cores())

    def release(self) -> None:
        """Not empty: Linux 6.1 refuses that to a group that has processes."""
        if not self._lender.release(self._pid, self):
            with contextlib.suppress(OSError):  # It may be gone.
                self._set(self._lender.all_of(self._pid))


def bring(tasks: int, threads: list[int]) -> None:
    """Put threads into the cpuset whose `tasks` file is open as `tasks`."""
    for tid in threads:
        with contextlib.suppress(ProcessLookupError):
            os.write(tasks, b"%d" % tid)


class AffinityCores(SandboxCores):
    """No control groups: affinity of PID 1 and of everything below it."""

    def lend(self, groups: SandboxCgroups | None, pid: int, *, cores: tuple[int, ...]) -> Hold:
        return _Affinity(self, pid, cores)


class _Affinity(CommonHold):
    def __init__(self, lender: AffinityCores, pid: int, cores: tuple[int, ...]) -> None:
        self._lender = lender
        self._pid = pid
        self._every = all_cores()
        check_cores(cores, self._every)
        self.cores = cores or tuple(self._every)
        self._hold(set(lender.hold(pid, self)))

    def _hold(self, cores: frozenset[int] | set[int]) -> set[int]:
        """All threads inside, those of kept processes included."""
        # What is forked between two looks inherits the old mask: look until nothing is new.
        seen: set[int] = set()
        for _ in range(8):
            found = set(threads_below(self._pid))
            for tid in found - seen:
                _set_affinity(tid, cores)
            if found <= seen:
                break
            seen |= found
        return seen

    def resize(self, cores: tuple[int, ...]) -> None:
        check_cores(cores, self._every)
        self.cores = cores
        cores = self._lender.all_of(self._pid)
        seen = self._hold(set(cores))
        running = [tid for tid in seen if _is_running(tid)][:MAX_SPREAD]
        for index, tid in enumerate(running):
            _set_affinity(tid, {cores[index % len(cores)]})
        for tid in running:
            _set_affinity(tid, set(cores))

    def release(self) -> None:
        if self._lender.release(self._pid, self):
            _set_affinity(self._pid, self._every)
        else:
            self._hold(set(self._lender.all_of(self._pid)))


def threads_below(
    pid: int, *, most: int = sys.maxsize, without: frozenset[int] = frozenset()
) -> list[int]:
    """The threads of `pid` and of its descendants; of `most` processes at the most.

    `without`: see `processes_below`.
    """
    found: list[int] = []
    for process in processes_below(pid, most=most, without=without):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [int(tid) for tid in os.listdir(f"/proc/{process}/task")]
    return found
