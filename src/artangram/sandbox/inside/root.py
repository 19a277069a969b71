"""Build the private file tree of a sandbox and move into it.

- `prepare` does what is the same for every sandbox, and can be done before one is asked for.
- Everything writable lives in one tmpfs with a fixed size and number of files.
- The base is only ever read: layers under an overlay, or read-only binds.
- After `enter`, nothing of the old root can be reached by any path.
"""

from __future__ import annotations

import os

from artangram.sandbox.inside import linux
from artangram.sandbox.inside.linux import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from typing import Any

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
READ_ONLY_PROC = ("sys",)
MASKED_PROC = (
    "buddyinfo", "cmdline", "config.gz", "diskstats", "interrupts", "iomem", "ioports", "kallsyms",
    "kcore", "key-users", "keys", "kmsg", "latency_stats", "modules", "mtrr", "partitions",
    "sched_debug", "softirqs", "sysrq-trigger", "timer_list", "timer_stats", "zoneinfo",
)  # fmt: skip
"""Empty files: they tell of the machine what no program needs, or change it."""
HIDDEN_PROC = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi", "tty")
"""Empty directories. Every user may write triggers to `pressure`, and the kernel takes
milliseconds to end each: a program with many would outlive its deadline by seconds."""
PROGRAM_DIRS = ("/usr/local/bin", "/usr/bin", "/bin")
LINKS_DIR = "/run/bin"
READ_ONLY = MS_RDONLY | MS_NOSUID | MS_NODEV
TERMINALS = "newinstance,ptmxmode=0666,mode=0600,max=64"
"""The machine has some thousands for all."""


def prepare(stage: str, *, own_proc: bool) -> None:
    """A place for the tree at `stage`; in it, as `d` and `p`, what will be `/dev` and `/proc`."""
    os.umask(0o022)  # The owner's may be stricter, and its user could not enter the tree.
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("box", stage, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=755")
    os.chdir(stage)
    for name in ("u", "w", "x", "r", "l", "d", "d/shm", "d/pts", "p", "e"):
        os.mkdir(name)
    _add_devices()
    if own_proc:
        linux.mount("proc", "p", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    else:
        linux.bind("/proc", "p")
    _restrict_proc()


def enter(plan: dict[str, Any]) -> int:
    """Make the tree of `plan` the root. Returns a descriptor of the layer that holds changes."""
    os.chdir(plan["stage"])
    options = f"size={plan['size_mb']}m,nr_inodes={plan['inodes']}"
    linux.mount("box", ".", flags=linux.MS_REMOUNT | MS_NOSUID | MS_NODEV, options=options)
    top = _mount_disk(plan)
    _fill_changes(plan, top)
    _mount_overlay(plan, top)
    upper = os.open(top + "u", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for source, target in plan["binds"]:
        held = linux.hold(source)
        linux.bind(f"/proc/self/fd/{held}", "r" + target, flags=READ_ONLY)
        os.close(held)
    linux.mount("d", "r/dev", flags=linux.MS_MOVE)
    linux.mount("p", "r/proc", flags=linux.MS_MOVE)
    os.chdir("r")
    linux.pivot_root_here()
    _make_homes(plan)
    _add_python()
    return upper


def _mount_disk(plan: dict[str, Any]) -> str:
    """Where the layer that holds changes is: here, or on a device."""
    if not plan["disk"]:
        return ""
    flags = MS_NOSUID | MS_NODEV
    linux.mount(plan["disk"], "x", kind="ext4", flags=flags, options="noinit_itable")
    for name in ("u", "w"):
        os.mkdir("x/" + name)
    return "x/"


def _fill_changes(plan: dict[str, Any], top: str) -> None:
    """What a new sandbox must find writable, and its user."""
    owner = (plan["uid"], plan["gid"])
    for name, mode in (("work", 0o755), ("tmp", 0o1777), ("var", 0o755), ("var/tmp", 0o1777)):
        _directory(f"{top}u/{name}", mode)
        if mode == 0o1777 or name == "work":
            os.chown(f"{top}u/{name}", *owner)
    for name in ("etc", "proc", "dev"):
        _directory(f"{top}u/{name}", 0o755)
    for path, data in plan["files"].items():
        fd = os.open(f"{top}u{path}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.write(fd, data)
        os.close(fd)


def _make_homes(plan: dict[str, Any]) -> None:
    """In the new root, so that links of the image lead nowhere else."""
    for path in plan["homes"]:
        made = ""
        for part in path.split("/")[1:]:
            made += "/" + part
            if not os.path.isdir(made):
                os.mkdir(made, 0o755)
        os.chown(made, plan["uid"], plan["gid"])


def _add_python() -> None:
    """`python` where an image has `python3` alone, as programs and people expect it."""
    found = ""
    for folder in PROGRAM_DIRS:
        if os.access(folder + "/python", os.X_OK):
            return
        if not found and os.access(folder + "/python3", os.X_OK):
            found = folder + "/python3"
    if not found or os.path.lexists(LINKS_DIR + "/python"):
        return
    for folder in ("/run", LINKS_DIR):
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o755)
    os.symlink(found, LINKS_DIR + "/python")


def _directory(path: str, mode: int) -> None:
    os.mkdir(path)
    os.chmod(path, mode)


def _mount_overlay(plan: dict[str, Any], top: str) -> None:
    # By descriptor, so that /proc/self/mountinfo inside tells no path of the host.
    paths = list(plan["layers"])
    image = linux.hold(paths[-1])
    paths[-1] = f"/proc/self/fd/{image}"
    if plan["own"]:
        linux.bind_as_users(paths[-1], "l", plan["users"])
        paths[-1] = "l"
    layers = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in paths]
    lower = ":".join(f"/proc/self/fd/{fd}" for fd in layers)
    options = f"lowerdir={lower},upperdir={top}u,workdir={top}w"
    if plan["userns"]:
        options += ",userxattr"
    linux.mount("box", "r", kind="overlay", flags=MS_NOSUID | MS_NODEV, options=options)
    for fd in (image, *layers):
        os.close(fd)


def _add_devices() -> None:
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, "d/" + name)
    for name in DEVICES:
        os.close(os.open("d/" + name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    os.chmod("d/shm", 0o1777)
    linux.bind("d", "d")
    for name in DEVICES:
        linux.bind("/dev/" + name, "d/" + name)
    linux.bind("d/shm", "d/shm")
    linux.mount("d", "d", flags=linux.MS_BIND | linux.MS_REMOUNT | READ_ONLY | MS_NOEXEC)
    linux.mount("devpts", "d/pts", kind="devpts", flags=MS_NOSUID | MS_NOEXEC, options=TERMINALS)


def _restrict_proc() -> None:
    for name in READ_ONLY_PROC:
        if os.path.exists("p/" + name):
            linux.bind("p/" + name, "p/" + name, flags=READ_ONLY | MS_NOEXEC)
    for name in MASKED_PROC:
        if os.path.exists("p/" + name):
            linux.bind("d/null", "p/" + name)
    for name in HIDDEN_PROC:
        if os.path.exists("p/" + name):
            linux.bind("e", "p/" + name, flags=READ_ONLY | MS_NOEXEC)
