"""This machine as a node: its cores in the order of their NUMA domains, memory, open files."""

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from artangram.core.scheduling.cluster import CpuSpec

_NODES = Path("/sys/devices/system/node")
_MEMORY = Path("/proc/meminfo")


class MachineInfo(Struct, frozen=True, kw_only=True):
    """What this process may use."""

    cores: tuple[int, ...]
    """By NUMA domain, so that the books' cores 0 to n - 1 fall into the same domains."""
    numa: int
    memory_mb: int

    def spec(
        self,
        *,
        cores: int | None = None,
        memory_mb: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> CpuSpec:
        """A node with all of it, or with the cores and memory given."""
        count = len(self.cores) if cores is None else min(cores, len(self.cores))
        return CpuSpec(
            nodes=1,
            cores=count,
            numa=self.numa if count == len(self.cores) else 1,
            memory_mb=self.memory_mb if memory_mb is None else memory_mb,
            labels=dict(labels or {}),
        )


def this_machine() -> MachineInfo:
    """Look at the machine."""
    usable = os.sched_getaffinity(0)
    domains = [sorted(usable & cores) for cores in _domains()]
    domains = [domain for domain in domains if domain] or [sorted(usable)]
    if sum(map(len, domains)) != len(usable) or len({len(domain) for domain in domains}) > 1:
        domains = [sorted(usable)]  # The books know only domains of equal size.
    return MachineInfo(
        cores=tuple(core for domain in domains for core in domain),
        numa=len(domains),
        memory_mb=free_memory_mb(),
    )


def allow_open_files() -> None:
    """Let this process open as many files as it may: every sandbox and every caller takes some.

    The usual limit is for programs that look at all numbers below it, and ends at a thousand.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _domains() -> list[set[int]]:
    return [parse_cores(path.read_text()) for path in sorted(_NODES.glob("node*/cpulist"))]


def parse_cores(text: str) -> set[int]:
    """The cores of a kernel's list, as in `0-3,8`."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def free_memory_mb() -> int:
    """Memory that is available without swapping or killing."""
    return _memory_mb("MemAvailable")


def total_memory_mb() -> int:
    """Memory of this machine, used or not."""
    return _memory_mb("MemTotal")


def _memory_mb(field: str) -> int:
    for line in _MEMORY.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) // 1024
    raise OSError(f"{_MEMORY} does not tell {field}")
