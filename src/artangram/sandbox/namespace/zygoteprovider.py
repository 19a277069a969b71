"""What providers do alike whose sandboxes are clones of a zygote."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from artangram.sandbox.errors import SandboxGone
from artangram.sandbox.namespace.cores import CoreLender
from artangram.sandbox.namespace.launch import ZygoteTraits
from artangram.sandbox.namespace.localprovider import LocalProvider
from artangram.sandbox.namespace.rundir import RunDir
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.namespace.zygoteclient import ZygoteClient


class ZygoteProvider(LocalProvider):
    """A provider that starts its sandboxes through a zygote, and hears of their ends."""

    def __init__(
        self,
        run_dir: RunDir,
        cores: CoreLender,
        *,
        zygote: ZygoteTraits,
        processes: Path | None = None,
    ) -> None:
        super().__init__(run_dir, cores, processes=processes)
        self._zygote = ZygoteClient(self, run_dir, zygote)
        #: Done when the zygote has told the pid of a sandbox, or that it could not start one.
        self._pid_told: dict[str, asyncio.Future[None]] = {}

    @property
    def zygote_pid(self) -> int:
        """0 before the first sandbox."""
        return self._zygote.pid

    def kill(self, sandbox: LocalSandbox) -> None:
        if sandbox.name in self.live:
            self._zygote.kill(sandbox.name)

    def on_created(self, name: str, pid: int) -> None:
        if name in self.live:
            self.live[name].pid = pid
        self._settle_start(name)

    def on_failed(self, name: str, reason: str) -> None:
        self._reap(name, reason)

    def on_exited(self, name: str, num_ooms: int) -> None:
        if name in self.live:
            self.live[name].num_ooms = num_ooms
        self._reap(name, "its first process is gone")

    def on_zygote_gone(self) -> None:
        """Its sandboxes die with it."""
        raise NotImplementedError

    def rlimits(self, *, processes: int, memory_mb: int, disk_mb: int) -> dict[int, int]:
        """See `execution.ExecutionHost`."""
        raise NotImplementedError

    def _start(self, traits: Traits, plan: dict[str, Any]) -> LocalSandbox:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        sandbox = LocalSandbox(self, traits, ours)
        self.live[traits.name] = sandbox
        self._pid_told[traits.name] = self._loop.create_future()
        self._zygote.create(plan, theirs)
        return sandbox

    async def _born(self, sandbox: LocalSandbox) -> None:
        """An init may report before its zygote: these are two sockets."""
        started = self._pid_told.get(sandbox.name)
        if started is not None:
            await asyncio.shield(started)
        if not sandbox.pid:
            raise SandboxGone("the zygote is gone")

    def _settle_start(self, name: str) -> None:
        started = self._pid_told.pop(name, None)
        if started is not None:
            started.set_result(None)

    def _reap(self, name: str, reason: str) -> None:
        self._settle_start(name)
        super()._reap(name, reason)

    async def _end(self) -> None:
        await self._zygote.close()
