"""A node looks at itself.

It only reads what the kernel tells, so it may be asked at any time. `diagnosis` judges it.
"""

import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from artangram import __version__
from artangram.managers import machine
from artangram.managers.examination import DirectoryInfo, NodeExamination
from artangram.sandbox.capabilities import Capabilities
from artangram.sandbox.namespace.cgroups import Hierarchies, find_hierarchies
from artangram.sandbox.namespace.rundir import default_state_dir
from artangram.scratchdir import SHARED_MEMORY

MB = 1 << 20
CONTROL_GROUPS = "cgroups"
"""The feature of a provider's capabilities that tells of them."""


def examine_node(
    kinds: Sequence[str], usual: Capabilities, *, protocol: int, data: bytes
) -> NodeExamination:
    """Look at this machine. `usual` is what the first of its providers can do."""
    groups = find_hierarchies()
    scratch = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    control = [one for one in usual.features if one.name == CONTROL_GROUPS]
    return NodeExamination(
        version=__version__,
        python=platform.python_version(),
        protocol=protocol,
        unix_s=time.time(),
        cores=len(os.sched_getaffinity(0)),
        core_limit=core_limit(groups),
        memory_mb=machine.total_memory_mb(),
        free_memory_mb=machine.free_memory_mb(),
        memory_limit_mb=memory_limit_mb(groups),
        providers=tuple(kinds),
        level=usual.level.name.lower(),
        control_groups=control[0] if control else None,
        directories=(
            directory_info("sandboxes", default_state_dir()),
            directory_info("scratch", scratch),
        ),
        data=data,
    )


def directory_info(
    purpose: str, path: Path, *, mounts: Path = Path("/proc/self/mountinfo")
) -> DirectoryInfo:
    """Of the nearest directory above `path` that exists."""
    while not path.exists():
        path = path.parent
    about = os.statvfs(path)
    return DirectoryInfo(
        purpose=purpose,
        path=str(path),
        filesystem=_filesystem(os.path.realpath(path), mounts.read_text()),
        free_mb=about.f_bavail * about.f_frsize // MB,
        total_mb=about.f_blocks * about.f_frsize // MB,
    )


def _filesystem(path: str, mountinfo: str) -> str:
    """The kind of the last mount whose place is the nearest above `path`."""
    best, kind = "", "unknown"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        where = before.split(" ")[4].encode().decode("unicode_escape")
        is_above = where == "/" or path == where or path.startswith(f"{where}/")
        if is_above and len(where) >= len(best):
            best, kind = where, after.split(" ")[0]
    return kind


def memory_limit_mb(groups: Hierarchies) -> int | None:
    """The least of all groups that this process is in; `None` without a limit."""
    v1 = groups.v1.get("memory")
    texts = [*_settings(groups.v2, "memory.max"), *_settings(v1, "memory.limit_in_bytes")]
    limits = [int(text) // MB for text in texts if text.isdecimal()]
    # The first version says "no limit" with a number that no machine has.
    limits = [limit for limit in limits if limit < machine.total_memory_mb()]
    return min(limits, default=None)


def core_limit(groups: Hierarchies) -> float | None:
    """Cores that this process may use at once, by time; `None` without a limit."""
    quotas = [text.split() for text in _settings(groups.v2, "cpu.max")]
    v1 = groups.v1.get("cpu")
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quotas += [list(pair) for pair in zip(*(_settings(v1, name) for name in names), strict=False)]
    limits = [int(most) / int(period) for most, period in quotas if most.isdecimal()]
    return min(limits, default=None)


def _settings(group: Path | None, name: str) -> Iterator[str]:
    """Of a control group and of those above it: each of them limits."""
    for directory in () if group is None else (group, *group.parents):
        with suppress(OSError):
            yield (directory / name).read_text().strip()
