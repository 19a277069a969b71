"""Try one isolation level in a process that ends right after; an exception says no."""

from __future__ import annotations

import os

from artangram.sandbox.inside import linux, root, seccomp, setup


def main(name: str, stage: str) -> None:
    if name == "seccomp":
        _filter()
    else:
        _namespaces(stage)


def _filter() -> None:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.Filter(seccomp.program(own_affinity=True)).install()
    try:
        linux.unshare(linux.CLONE_NEWUTS)
    except PermissionError:
        return
    raise OSError(0, "the filter lets everything pass")


def _namespaces(stage: str) -> None:
    """A whole root, as a sandbox would have it, in the child of a fresh set of namespaces."""
    uid, gid = os.getuid(), os.getgid()
    flags = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    linux.unshare(flags | linux.CLONE_NEWNET | (linux.CLONE_NEWUSER if uid else 0))
    if uid:
        setup.write_setting("/proc/self/setgroups", "deny")
        setup.write_setting("/proc/self/uid_map", f"1000 {uid} 1")
        setup.write_setting("/proc/self/gid_map", f"1000 {gid} 1")
    base, place = stage + "/base", stage + "/stage"
    for name in ("", "/proc", "/dev"):
        os.mkdir(base + name)
    inner = os.stat(stage).st_uid
    plan = {
        "stage": place,
        "size_mb": 1,
        "inodes": 100,
        "uid": inner,
        "gid": os.stat(stage).st_gid,
        "userns": bool(uid),
        "layers": [os.path.realpath(base)],
        "own": False,
        "binds": [],
        "files": {},
        "homes": [],
        "disk": "",
    }
    os.mkdir(place)
    pid = os.fork()
    if pid == 0:
        root.prepare(place, own_proc=True)
        root.enter(plan)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise OSError(0, "a private root cannot be made")
