"""The control groups of a provider's sandboxes, first and second version alike.

- All groups are made below the group the provider itself runs in: limits set on the provider
  from outside also hold for its sandboxes.
- Groups of one sandbox are made and joined by the sandbox itself and removed by the zygote
  (`inside.setup`, `inside.zygote`); here are the names, the settings and the readings.
- Freezing prefers the second version wherever it is mounted, even beside the first: only there
  can a frozen process still be killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.inside.linux import SIGKILL
from artangram.sandbox.inside.population import signal_one
from artangram.sandbox.inside.setup import write_setting
from artangram.sandbox.inside.zygote import count_ooms, remove_group
from artangram.sandbox.namespace.kernel import processes_below, read_setting, ticks_below
from artangram.sandbox.namespace.shares import SharedCores
from artangram.sandbox.protocol import Limits

Plan = list[tuple[str, dict[str, str], str]]
MB = 1 << 20
CONTROLLERS = ("memory", "pids", "cpuset", "cpu")
FREEZE_USUALLY_S = 0.1
FREEZE_PATIENCE_S = 1.0
DEATH_PATIENCE_S = 5.0
"""The kernel may have much to tidy up."""
FREEZE_TRY_S = 0.02
SOCKET_MEMORY = "memory.kmem.tcp.limit_in_bytes"
PART_IN_SOCKETS = 4
"""Of as much memory as a sandbox has, on top of it."""
ROOT_GROUP = "artangram-cluster"
"""Version 2: where a process goes that sat in the group it gives controllers to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchies:
    """Where this process stands: one directory per controller of version 1, one of version 2."""

    v1: dict[str, Path] = field(default_factory=dict)
    v2: Path | None = None
    v2_controllers: frozenset[str] = frozenset()


def find_hierarchies(proc: Path = Path("/proc/self")) -> Hierarchies:
    mounts = _mounted(proc / "mountinfo")
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            v2 = mounts["cgroup2"] / path.lstrip("/") if "cgroup2" in mounts else None
            if v2 is not None and v2.name == ROOT_GROUP:
                v2 = v2.parent  # we went there ourselves
            continue
        for name in controllers.split(","):
            if name in mounts:
                v1[name] = mounts[name] / path.lstrip("/")
    offered = v2 / "cgroup.controllers" if v2 else None
    names = offered.read_text().split() if offered and offered.exists() else []
    return Hierarchies(v1=v1, v2=v2, v2_controllers=frozenset(names))


def _mounted(mountinfo: Path) -> dict[str, Path]:
    """Mount points by controller name, and by "cgroup2" for the second version."""
    found: dict[str, Path] = {}
    for line in mountinfo.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        where = Path(before.split(" ")[4])
        if kind == "cgroup2":
            found.setdefault("cgroup2", where)
        elif kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, where)
    return found


class Groups:
    """The groups of one provider. `open` makes them, `close` removes them."""

    def __init__(self, hierarchies: Hierarchies, owner: str) -> None:
        self._owner = f"artangram-{owner}"
        self.is_v2 = {"memory", "pids"} <= hierarchies.v2_controllers
        self._parents: dict[str, Path] = {}
        if self.is_v2 and hierarchies.v2:
            for role in ("freezer", *(hierarchies.v2_controllers & set(CONTROLLERS))):
                self._parents[role] = hierarchies.v2 / self._owner
        else:
            for role in ("memory", "pids", "cpuset", "freezer"):
                if role in hierarchies.v1:
                    self._parents[role] = hierarchies.v1[role] / self._owner
            if "cpu" in hierarchies.v1:
                self._parents["cpu"] = hierarchies.v1["cpu"] / self._owner
            if hierarchies.v2 is not None:
                self._parents["freezer"] = hierarchies.v2 / self._owner
        self.freezes_v2 = "freezer" in self._parents and (
            self._parents["freezer"].parent == hierarchies.v2
        )

    @property
    def directories(self) -> list[Path]:
        return list(dict.fromkeys(self._parents.values()))

    @property
    def cpuset(self) -> Path | None:
        """`None` where cores cannot be held this way: a user's slice often has no such one."""
        return self._parents.get("cpuset")

    @property
    def processes(self) -> Path:
        """Counts the processes of all sandboxes."""
        return self._parents["pids"]

    def open(self) -> None:
        """Make the provider's own groups; `OSError` when this machine does not let us."""
        missing = {"memory", "pids", "freezer"} - set(self._parents)
        if missing:
            raise OSError(0, "controllers not mounted: " + ", ".join(sorted(missing)))
        for directory in self.directories:
            directory.mkdir()
        if self.is_v2:
            self._delegate(self._parents["memory"])
        elif self.cpuset is not None:
            for name in ("cpuset.mems", "cpuset.cpus"):
                write_setting(str(self.cpuset / name), (self.cpuset.parent / name).read_text())

    def _delegate(self, group: Path) -> None:
        """Hand controllers down. The kernel refuses while processes sit in a group that does."""
        wanted = " ".join(f"+{name}" for name in CONTROLLERS if name in self._parents)
        above = str(group.parent / "cgroup.subtree_control")
        try:
            write_setting(above, wanted)
        except OSError:
            root = group.parent / ROOT_GROUP
            root.mkdir(exist_ok=True)
            for pid in (group.parent / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    write_setting(str(root / "cgroup.procs"), pid)
            write_setting(above, wanted)
        write_setting(str(group / "cgroup.subtree_control"), wanted)

    def close(self) -> None:
        for directory in self.directories:
            if directory.exists():
                for child in directory.iterdir():
                    if child.is_dir():
                        remove_group(str(child))
                remove_group(str(directory))

    def of(self, name: str, limits: Limits) -> SandboxCgroups:
        return SandboxCgroups(self, {role: p / name for role, p in self._parents.items()}, limits)


class SandboxCgroups:
    """The groups of one sandbox: limits, readings, freezing. Plain files, written when changed."""

    def __init__(self, groups: Groups, directories: dict[str, Path], limits: Limits) -> None:
        self._is_v2 = groups.is_v2
        self._freezes_v2 = groups.freezes_v2
        self._where = {role: str(path) for role, path in directories.items()}
        self._limits = limits
        self._memory_mb = limits.memory_mb
        self._processes = limits.processes
        self.shared = SharedCores(self._where.get("cpu", ""), is_v2=groups.is_v2)
        self._is_frozen = self._expects_kept = False
        self.num_ooms = 0

    @property
    def cpuset(self) -> str:
        return self._where["cpuset"]

    @property
    def ooms_file(self) -> str:
        return self._where["memory"] + ("/memory.events" if self._is_v2 else "/memory.oom_control")

    @property
    def peak_file(self) -> str:
        name = "memory.peak" if self._is_v2 else "memory.max_usage_in_bytes"
        return f"{self._where['memory']}/{name}"

    @property
    def _held_file(self) -> str:
        name = "memory.current" if self._is_v2 else "memory.usage_in_bytes"
        return f"{self._where['memory']}/{name}"

    def plan(self) -> Plan:
        memory = self._memory_settings(self._limits.memory_mb)
        pids = {"pids.max": str(self._limits.processes + 1)}  # and PID 1
        if self._is_v2:
            return [(self._where["memory"], memory | pids, "cgroup.procs")]
        # Joining the second version costs milliseconds: left to the first freeze.
        join_freezer = "" if self._freezes_v2 else "tasks"
        return [
            (self._where["memory"], memory | self._socket_settings(), "tasks"),
            (self._where["pids"], pids, "tasks"),
            (self._where["freezer"], {}, join_freezer),
        ]

    def _memory_settings(self, memory_mb: int) -> dict[str, str]:
        size = str(memory_mb * MB)
        if self._is_v2:
            return {"memory.max": size, "memory.swap.max": "0"}
        settings = {"memory.limit_in_bytes": size}
        parent = os.path.dirname(self._where["memory"])
        if os.path.exists(parent + "/memory.memsw.limit_in_bytes"):
            settings["memory.memsw.limit_in_bytes"] = size
        return settings

    def _socket_settings(self) -> dict[str, str]:
        """Version 1 counts what waits in sockets apart from memory, and only if it is limited."""
        if not os.path.exists(f"{os.path.dirname(self._where['memory'])}/{SOCKET_MEMORY}"):
            return {}
        return {SOCKET_MEMORY: str(self._limits.memory_mb * MB // PART_IN_SOCKETS)}

    def compete_as_we_do(self, pid: int) -> None:
        """Take a process out of the engine's own group for `cpu`.

        That one competes as a whole with each process outside of it, however urgent its init is.
        """
        if not self._is_v2 and "cpu" in self._where:
            ours = os.path.dirname(os.path.dirname(self._where["cpu"]))
            write_setting(ours + "/cgroup.procs", str(pid))

    def remove(self) -> None:
        """The sandbox is gone, and its zygote did not clean up after it."""
        for directory, _, _ in self.plan():
            remove_group(directory)

    def begin(self, *, memory_mb: int, processes: int) -> None:
        """Set the limits of one action. Raises `BadInput` if what is held is more already."""
        wanted = processes or self._limits.processes
        if wanted != self._processes:
            write_setting(self._where["pids"] + "/pids.max", str(wanted + 1))
            self._processes = wanted
        size = memory_mb or self._limits.memory_mb
        if size != self._memory_mb:
            self._resize_memory(size)

    def end(self) -> None:
        """Its limits are those of the sandbox again: files may come before the next action."""
        self.begin(memory_mb=0, processes=0)

    def forget_peak(self) -> None:
        """Begin a new peak from what is held now; version 2 keeps that of the whole life."""
        if not self._is_v2:
            write_setting(self.peak_file, "0")

    def _resize_memory(self, memory_mb: int) -> None:
        held_mb = int(read_setting(self._held_file)) // MB
        if held_mb >= memory_mb:
            # Version 1 would refuse it, version 2 would kill for it.
            problem = f"{memory_mb} is less than the {held_mb} that its sandbox holds in files"
            raise BadInput("memory_mb", problem, "give more, or remove files first")
        settings = list(self._memory_settings(memory_mb).items())
        if memory_mb > self._memory_mb:
            settings.reverse()  # version 1: memory may never exceed memory plus swap
        for name, value in settings:
            write_setting(f"{self._where['memory']}/{name}", value)
        self._memory_mb = memory_mb

    def has_many_processes(self) -> bool:
        """Are there at least half as many as there may be?"""
        return 2 * int(read_setting(self._where["pids"] + "/pids.current")) > self._processes

    def read_peak(self) -> int:
        """In bytes; 0 where the kernel does not count it."""
        try:
            return int(read_setting(self.peak_file))
        except OSError:
            return 0  # kernels before 5.19 keep no peak in version 2

    def read_ooms(self) -> int:
        """How often the kernel killed for memory."""
        return count_ooms(self.ooms_file)

    def note_ooms(self, num_ooms: int) -> bool:
        """Whether the kernel killed for memory since the last call."""
        grew, self.num_ooms = num_ooms > self.num_ooms, num_ooms
        return grew

    def expect_kept(self, pid: int) -> None:
        """Have what `pid` starts from now on start in the group that will be frozen.

        Of processes that run, `_gather` may miss one that forks and ends while it looks.
        """
        if self._freezes_v2 and not self._is_v2 and not self._expects_kept:
            write_setting(self._where["freezer"] + "/cgroup.procs", str(pid))
            self._expects_kept = True

    def freeze(self, pid: int) -> None:
        """Stop everything below `pid`, the sandbox's first process, itself included."""
        if self._is_frozen:
            return
        # A kept process may have been killed to make room for a file: no later command's doing.
        self.note_ooms(self.read_ooms())
        if not self._freezes_v2:
            self._freeze_v1()
        else:
            self._freeze_v2(pid)
        self._is_frozen = True

    def _freeze_v2(self, pid: int) -> None:
        write_setting(self._where["freezer"] + "/cgroup.freeze", "1")
        if not self._is_v2:
            self._gather(pid)
        if self._reaches("cgroup.events", b"frozen 1", within_s=FREEZE_USUALLY_S):
            return
        before = ticks_below(pid)
        if self._reaches("cgroup.events", b"frozen 1", within_s=FREEZE_PATIENCE_S):
            return
        # A process that ran meanwhile is still in its system call, on a core that it does not have.
        for process, ticks in ticks_below(pid).items():
            if ticks > before.get(process, ticks):
                signal_one(process, SIGKILL)
        if not self._reaches("cgroup.events", b"frozen 1", within_s=DEATH_PATIENCE_S):
            raise SandboxError("the sandbox did not freeze")

    def _freeze_v1(self) -> None:
        """Version 1 may stop half-way beside a process that is just being made: begin anew then."""
        for _ in range(int(FREEZE_PATIENCE_S / FREEZE_TRY_S)):
            write_setting(self._where["freezer"] + "/freezer.state", "FROZEN")
            if self._reaches("freezer.state", b"FROZEN", within_s=FREEZE_TRY_S):
                return
            self.thaw()
        raise SandboxError("the sandbox did not freeze")

    def _gather(self, pid: int) -> None:
        """Move every process into the freezing group; each stops as it enters, so this ends."""
        procs = self._where["freezer"] + "/cgroup.procs"
        inside: set[int] = set()
        while missing := set(processes_below(pid)) - inside:
            for stranger in missing:
                with contextlib.suppress(ProcessLookupError):
                    write_setting(procs, str(stranger))
            inside |= missing

    def thaw(self) -> None:
        self._is_frozen = False
        if not self._freezes_v2:
            write_setting(self._where["freezer"] + "/freezer.state", "THAWED")
        else:
            write_setting(self._where["freezer"] + "/cgroup.freeze", "0")

    def _reaches(self, name: str, wanted: bytes, *, within_s: float) -> bool:
        """Frozen takes effect within microseconds; a process in a system call may need longer."""
        gives_up_at = time.monotonic() + within_s
        while wanted not in read_setting(f"{self._where['freezer']}/{name}"):
            if time.monotonic() > gives_up_at:
                return False
            time.sleep(0.0001)
        return True
