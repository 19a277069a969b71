"""First process of a machine with control groups of version 2: tries what only those can show.

Run by `test_version_2.py` in a user-mode Linux, over the read-only files of the real machine. One
of them is the state directory to begin with: a compiler would take long here. Prints one line of
JSON behind `FOUND` and powers off.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

POWER_OFF = 0x4321FEDC
FINIT_MODULE = 313
MOUNTS = {"proc": "/proc", "sysfs": "/sys", "tmpfs": "/mnt", "cgroup2": "/sys/fs/cgroup"}
CGROUPS = Path("/sys/fs/cgroup")
DUMPED = Path("/mnt/dumped")
ASKED = Path("/mnt/asked")
SIGABRT = 6
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
ALLOCATE = "data = b'x' * (1 << 27)"
FORK = """
import os
count = 0
try:
    while os.fork():
        count += 1
    os.read(os.pipe()[0], 1)
except OSError:
    print(count)
"""

# Ways to make the kernel look for a module: protocols, tables of sockets, bridges and the like.
LOAD = {
    "protocols": """
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        for protocol in (33, 115, 132, 200):
            try:
                socket.socket(family, kind, protocol).close()
            except OSError:
                pass
""",
    "tables": """
import socket, struct
for family in (1, 2, 10, 16, 17, 40):
    for protocol in (0, 6, 132, 255):
        asked = struct.pack("IHHIIBBBBI", 72, 20, 0x301, 1, 0, family, protocol, 0, 0, 0xFFF)
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as sock:
                sock.sendto(asked + bytes(48), (0, 0))
        except OSError:
            pass
""",
    "questions": """
import fcntl, socket
for question in range(0x8900, 0x8A00):
    try:
        fcntl.ioctl(socket.socket(), question, bytes(256))
    except OSError:
        pass
""",
}


def mount_all(overlay: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, where in MOUNTS.items():
        name = kind.encode()
        assert libc.mount(name, where.encode(), name, 0, None) == 0, ctypes.get_errno()
    if "overlay" not in Path("/proc/filesystems").read_text():
        with open(overlay, "rb") as module:
            done = libc.syscall(FINIT_MODULE, module.fileno(), b"", 0)
            assert done == 0, ctypes.get_errno()


def sit_in_a_group() -> None:
    """As under systemd: a group of our own, with controllers to hand on, and us inside."""
    home = CGROUPS / "app"
    home.mkdir()
    (CGROUPS / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    (home / "cgroup.procs").write_text("0")


def take_cores() -> None:
    """As on many machines: a crash starts a program, by root and outside of any sandbox."""
    helper = Path("/mnt/helper")
    helper.write_text(f"#!/bin/sh\n: > {DUMPED}\nexec cat > /dev/null\n")
    helper.chmod(0o755)
    Path("/proc/sys/kernel/core_pattern").write_text(f"|{helper}")


def was_dumped() -> bool:
    found = DUMPED.exists()
    DUMPED.unlink(missing_ok=True)
    return found


def take_requests() -> None:
    """As on most machines: the kernel starts a program for a module that it lacks."""
    helper = Path("/mnt/modprobe")
    helper.write_text(f'#!/bin/sh\necho "$@" >> {ASKED}\nexit 1\n')
    helper.chmod(0o755)
    Path("/proc/sys/kernel/modprobe").write_text(str(helper))


def was_asked() -> list[str]:
    found = ASKED.read_text().splitlines() if ASKED.exists() else []
    ASKED.unlink(missing_ok=True)
    return found


def groups_left() -> list[str]:
    return sorted(path.name for path in (CGROUPS / "app").iterdir() if path.is_dir())


async def look(state_dir: Path) -> dict[str, Any]:
    # Only now: it looks at /sys as it is imported.
    from artangram.sandbox import Command, HostImage, Limits, NamespaceProvider
    from artangram.sandbox.probe import probe

    provider = await NamespaceProvider.open(state_dir=state_dir)
    limits = Limits(memory_mb=64, disk_mb=16, processes=20)
    box = await provider.create(HostImage(), limits=limits)
    second = await provider.create(HostImage(), limits=limits)
    bomb = await box.run(Command(argv=(*PYTHON, ALLOCATE)))
    small = await box.run(Command(argv=("/usr/bin/true",)))
    forks = await box.run(Command(argv=(*PYTHON, FORK), timeout_s=20))
    await box.run(Command(argv=("setsid", "-f", "sleep", "100"), keep=True))
    events = next((CGROUPS / "app").glob(f"artangram-*/{box.name}/cgroup.events")).read_text()
    lent = await second.run(Command(argv=("/usr/bin/nproc",), cores=(0,)))
    dumped = []
    take_cores()
    for code in ("", "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "):
        crash = "import os, resource; " + code + "os.abort()"
        assert (await second.run(Command(argv=(*PYTHON, crash)))).signal == SIGABRT
        dumped.append(was_dumped())
    take_requests()
    asked = {}
    for way, code in LOAD.items():
        tried = await second.run(Command(argv=(*PYTHON, code)))
        assert tried.ok, tried
        asked[way] = was_asked()
    await provider.close()
    return {
        "dumped": dumped,
        "asked": asked,
        "level": provider.capabilities.level.name,
        "detail": next(f.detail for f in probe().features if f.name == "cgroups"),
        "out_of_memory": [bomb.out_of_memory, small.out_of_memory],
        "peak_mb": bomb.peak_memory_bytes >> 20,
        "forks": int(forks.stdout or -1),
        "frozen": "frozen 1" in events,
        "cores": lent.stdout.decode().strip(),
        "left": groups_left(),
    }


def main() -> None:
    found: dict[str, Any]
    os.environ |= {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "TMPDIR": "/mnt"}
    try:
        mount_all(sys.argv[1])
        sit_in_a_group()
        state_dir = Path(shutil.copytree(sys.argv[2], "/mnt/state"))
        found = asyncio.run(look(state_dir))
    except BaseException:  # noqa: BLE001 - whatever it is, the caller is to see it
        found = {"problem": traceback.format_exc()}
    print("FOUND", json.dumps(found), flush=True)
    ctypes.CDLL(None).reboot(POWER_OFF)


if __name__ == "__main__":
    main()
