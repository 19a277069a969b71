"""Ends what a provider left when it dies without a word: processes, control groups, files.

For sandboxes that are no children of ours, or whose init may be frozen and cannot see that its
socket closed.
"""

from __future__ import annotations

import os
import time

from artangram.sandbox.inside import linux, population, setup
from artangram.sandbox.inside.zygote import listed_groups, remove_tree, thaw_group

KILL_PATIENCE_S = 2.0
LOOK_AGAIN_S = 0.005


def main(owner: int, run_dir: str) -> None:
    """`owner` is the read end of a pipe whose other end the provider holds."""
    linux.ignore_interrupts()
    os.read(owner, 1)
    reap(run_dir)


def reap(run_dir: str) -> None:
    """Kill everything in the control groups that `run_dir` names, and remove it all."""
    for parent in listed_groups(run_dir):
        _end_groups(parent)
    remove_tree(run_dir)


def _end_groups(parent: str) -> None:
    try:
        groups = [entry.path for entry in os.scandir(parent) if entry.is_dir()]
    except FileNotFoundError:
        return
    for group in groups:
        # A slot has no sandbox of its own; its processes are also in the group of their sandbox.
        if not os.path.exists(group + "/cpuset.cpus") or os.path.exists(group + "/memory.max"):
            _kill_all(group)


def _kill_all(group: str) -> None:
    gives_up_at = time.monotonic() + KILL_PATIENCE_S
    while time.monotonic() < gives_up_at:
        try:
            with open(group + "/cgroup.procs") as listed:
                pids = listed.read().split()
        except OSError:
            return  # another process removed it
        if not pids:
            return
        for pid in pids:
            population.signal_one(int(pid), linux.SIGKILL)
        _thaw(group)
        time.sleep(LOOK_AGAIN_S)


def _thaw(group: str) -> None:
    thaw_group(group)
    if os.path.exists(group + "/cgroup.freeze"):
        setup.write_setting(group + "/cgroup.freeze", "0")
