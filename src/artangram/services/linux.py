"""How much memory a replica uses, and may use, by the kernel's account."""

import ctypes
import resource
from pathlib import Path

_MB = 2**20
_OWN: tuple[str, ...] = ("Private_Clean", "Private_Dirty")
_ALL: tuple[str, ...] = ("Rss",)


def status_mb(field: str) -> float:
    """A field of `/proc/self/status` that is an amount of memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) / 1024
    raise OSError(f"the kernel does not tell {field}")


def limit_data(most_mb: float) -> None:
    """Let this process have no more data than `most_mb`; may be raised again."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(most_mb * _MB)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def trim_heap() -> None:
    """Give back to the kernel what the allocator keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)


def used_mb(pid: int, *, weights: str) -> float:
    """Memory of a process: what it alone has, and what it has mapped below `weights`."""
    total_kb, counted = 0, _OWN
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in counted:
            total_kb += int(rest.split()[0])
        elif "-" in name.partition(" ")[0]:
            counted = _ALL if line.split(maxsplit=5)[-1].startswith(weights) else _OWN
    return total_kb / 1024
