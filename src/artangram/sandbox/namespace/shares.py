"""Cores that several sandboxes use at once: the share of each, and its ceiling.

A sandbox has no such group before its first command with a `CpuShare`: a lease of whole cores needs
none, and a process that another one moves into it waits milliseconds.
"""

from __future__ import annotations

import contextlib
import os

from artangram.sandbox.cpushare import CpuShare
from artangram.sandbox.inside.setup import write_setting
from artangram.sandbox.inside.zygote import remove_group
from artangram.sandbox.namespace.kernel import processes_below

PERIOD_US = 100_000
USUAL_SHARES, USUAL_WEIGHT = 1024, 100


class SharedCores:
    """The group of one sandbox for the controller `cpu`; version 2 has one group for everything."""

    def __init__(self, directory: str, *, is_v2: bool) -> None:
        self._directory = directory
        self._is_v2 = is_v2
        #: What it is now.
        self.share: CpuShare | None = None
        self._is_made = False

    def set(self, pid: int, share: CpuShare | None) -> None:
        """From now on `pid` and all below it have this share, or no limit."""
        if share == self.share or not self._directory:
            return
        if not self._is_made:
            self._make(pid)
        for name, value in self._settings(share).items():
            write_setting(f"{self._directory}/{name}", value)
        self.share = share

    def _make(self, pid: int) -> None:
        self._is_made = True
        if self._is_v2:
            return
        os.mkdir(self._directory)
        for one in processes_below(pid):
            with contextlib.suppress(ProcessLookupError):
                write_setting(self._directory + "/cgroup.procs", str(one))

    def _settings(self, share: CpuShare | None) -> dict[str, str]:
        milli = 1000 if share is None else share.weight_milli
        limit_us = 0 if share is None else share.limit_milli * PERIOD_US // 1000
        if self._is_v2:
            most = f"{limit_us or 'max'} {PERIOD_US}"
            return {"cpu.weight": str(max(1, USUAL_WEIGHT * milli // 1000)), "cpu.max": most}
        return {
            "cpu.shares": str(max(2, USUAL_SHARES * milli // 1000)),
            "cpu.cfs_period_us": str(PERIOD_US),
            "cpu.cfs_quota_us": str(limit_us or -1),
        }

    def close(self) -> None:
        """Remove the group of a sandbox that is gone."""
        if self._is_made and not self._is_v2:
            remove_group(self._directory)
