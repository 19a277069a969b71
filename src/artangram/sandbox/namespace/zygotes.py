"""What providers do alike whose sandboxes are clones of a zygote."""

from __future__ import annotations

import socket
from typing import Any

from artangram.sandbox.namespace.cores import Cores
from artangram.sandbox.namespace.home import Household
from artangram.sandbox.namespace.launch import ZygoteTraits
from artangram.sandbox.namespace.nursery import Nursery
from artangram.sandbox.namespace.rundir import RunDir
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.namespace.traits import Traits


class ZygoteHousehold(Household):
    """A household with a nursery, and the parent of those born there."""

    def __init__(self, run_dir: RunDir, cores: Cores, *, zygote: ZygoteTraits) -> None:
        super().__init__(run_dir, cores)
        self._nursery = Nursery(self, run_dir, zygote)

    @property
    def zygote_pid(self) -> int:
        """0 before the first sandbox."""
        return self._nursery.pid

    def kill(self, sandbox: LocalSandbox) -> None:
        if sandbox.name in self.live:
            self._nursery.kill(sandbox.name)

    def on_born(self, name: str, pid: int) -> None:
        if name in self.live:
            self.live[name].pid = pid

    def on_failed(self, name: str, reason: str) -> None:
        self._bury(name, reason)

    def on_exited(self, name: str, num_ooms: int) -> None:
        if name in self.live:
            self.live[name].num_ooms = num_ooms
        self._bury(name, "its first process is gone")

    def on_zygote_gone(self) -> None:
        """Its sandboxes die with it."""
        raise NotImplementedError

    def rlimits(self, *, processes: int, memory_mb: int, disk_mb: int) -> dict[int, int]:
        """See `execution.Home`."""
        raise NotImplementedError

    def _start(self, traits: Traits, plan: dict[str, Any]) -> LocalSandbox:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        sandbox = LocalSandbox(self, traits, ours)
        self.live[traits.name] = sandbox
        self._nursery.create(plan, theirs)
        return sandbox

    async def _end(self) -> None:
        await self._nursery.close()
