"""What every provider of sandboxes on this machine does alike: keep, remember, close.

A provider says how a sandbox is made (`create`) and what ends with it (`_end`); the sandboxes,
their snapshots, the directory and the order of closing are here.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from artangram.sandbox.errors import CreateFailed, SandboxGone
from artangram.sandbox.namespace.cores import CoreLender
from artangram.sandbox.namespace.execution import Watch
from artangram.sandbox.namespace.machineroom import MachineRoom
from artangram.sandbox.namespace.netns import listening_in
from artangram.sandbox.namespace.proxy import SandboxProxy
from artangram.sandbox.namespace.rundir import RunDir
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.namespace.snapshots import SnapshotStore
from artangram.sandbox.namespace.traits import Traits, fresh_uids
from artangram.sandbox.network import PROXY_PORT, is_proxied
from artangram.sandbox.protocol import Image, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms

Base = TypeVar("Base")

MAX_ENDING = 8
"""More sandboxes ended at once only wait for the kernel's locks."""

LONGEST_WAIT_S = 3600.0
"""A timer for years is more than some event loops take."""

MOST_RESTING = 16
"""Of more sandboxes than this, none at rest stays where a command may be lent cores."""


class LocalProvider:
    """See the module, and `sandbox.SandboxHost` for what a sandbox asks of it."""

    def __init__(
        self, run_dir: RunDir, cores: CoreLender, *, processes: Path | None = None
    ) -> None:
        """`processes` is the group that counts those of all its sandboxes."""
        self.live: dict[str, LocalSandbox] = {}
        self.cores = cores
        self._loop = asyncio.get_running_loop()
        self.watch = Watch(self._loop)
        self.room = MachineRoom(processes)
        self._run_dir = run_dir
        self._snapshots = SnapshotStore(run_dir.snapshots, live=self._standing)
        self._numbers = itertools.count(1)
        self._uids = fresh_uids(self._snapshots.uids)
        self._is_closed = False
        self._proxies: dict[str, SandboxProxy] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._expire()

    @property
    def run_path(self) -> Path:
        """The provider's own directory; gone when the provider is."""
        return self._run_dir.path

    @property
    def is_crowded(self) -> bool:
        return len(self.live) > MOST_RESTING

    @property
    def _is_root(self) -> bool:
        return os.getuid() == 0

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxGone("the provider is closed")

    async def _ready(self, sandbox: LocalSandbox) -> LocalSandbox:
        """`sandbox` once it serves; what cannot serve leaves nothing."""
        try:
            await sandbox.wait_ready()
            await self._born(sandbox)
            if is_proxied(sandbox.traits.limits.network):
                await self._open_proxy(sandbox)
        except BaseException as error:
            await sandbox.close()
            if isinstance(error, SandboxGone):
                raise CreateFailed(str(error)) from error
            raise
        return sandbox

    async def _open_proxy(self, sandbox: LocalSandbox) -> None:
        limits = sandbox.traits.limits
        proxy = SandboxProxy(limits.network, private=limits.private)
        self._proxies[sandbox.name] = proxy
        try:
            await proxy.serve(await asyncio.to_thread(listening_in, sandbox.pid, PROXY_PORT))
        except OSError as error:
            raise CreateFailed(f"its proxy cannot listen: {error.strerror}") from error

    async def _born(self, sandbox: LocalSandbox) -> None:
        """Return when `sandbox.pid` is known: cores are lent to it."""

    async def remember(self, traits: Traits, changes: int, terms: SnapshotTerms) -> Snapshot:
        base = await self._base_of(traits.image)
        taken = await self._snapshots.put(traits, changes, terms=terms, base=base)
        self._expire()
        return taken

    async def _base_of(self, image: Image) -> str:
        """What an image is, if that may change under its name."""
        return ""

    def _standing(self) -> Iterable[Traits]:
        """Sandboxes that need the layers of the snapshot they were made from."""
        return [sandbox.traits for sandbox in self.live.values()]

    def _expire(self) -> None:
        """Forget what has been idle for its time, now and whenever something will have been."""
        if self._expiry is not None:
            self._expiry.cancel()
        wait_s = None if self._is_closed else self._snapshots.expire()
        self._expiry = None
        if wait_s is not None:
            self._expiry = self._loop.call_later(min(wait_s, LONGEST_WAIT_S) + 0.01, self._expire)

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return self._snapshots.listed()

    async def forget(self, snapshot: Snapshot) -> bool:
        return self._snapshots.forget(snapshot)

    def archive(self, snapshot: Snapshot) -> Path:
        return self._snapshots.archive(snapshot)

    async def pack(self, snapshot: Snapshot) -> None:
        await self._snapshots.pack(snapshot)

    async def adopt(self, snapshot: Snapshot) -> None:
        await self._snapshots.adopt(snapshot)
        self._expire()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._expire()
        await self._settle()
        await close_all(self.live.values())
        if self._closing:
            await asyncio.wait(self._closing)
        self.cores.close()
        await self._end()
        self._run_dir.close()

    async def _settle(self) -> None:
        """Return when all sandboxes are known that were about to be made."""

    async def _end(self) -> None:
        """Every sandbox is gone: end what made them."""
        raise NotImplementedError

    def _reap(self, name: str, reason: str) -> None:
        """Nothing is left of a sandbox."""
        sandbox, proxy = self.live.pop(name, None), self._proxies.pop(name, None)
        if proxy is not None:
            closing = self._loop.create_task(proxy.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        if sandbox is not None:
            sandbox.reap(reason)
            self._snapshots.remove_unused()


async def drained(permits: asyncio.Semaphore, number: int) -> None:
    """Return when all `number` permits have been given back."""
    held = 0
    try:
        while held < number:
            await permits.acquire()
            held += 1
    finally:
        for _ in range(held):
            permits.release()


async def close_all(sandboxes: Iterable[LocalSandbox]) -> None:
    """End many sandboxes."""
    ending = asyncio.Semaphore(MAX_ENDING)

    async def end(sandbox: LocalSandbox) -> None:
        async with ending:
            await sandbox.close()

    await asyncio.gather(*map(end, list(sandboxes)), return_exceptions=True)


class PreparedImages(Generic[Base]):
    """Prepares each image once, however many ask at the same time.

    An image whose preparation failed is prepared again for the next caller.
    """

    def __init__(self, prepare: Callable[[Image], Coroutine[Any, Any, Base]]) -> None:
        self._prepare = prepare
        self._made: dict[Image, asyncio.Task[Base]] = {}

    async def of(self, image: Image) -> Base:
        if image not in self._made:
            self._made[image] = asyncio.create_task(self._prepare(image))
        try:
            # A cancelled caller does not stop it for the others.
            return await asyncio.shield(self._made[image])
        except Exception:
            self.forget(image)
            raise

    def forget(self, image: Image) -> None:
        """Prepare it again for the next caller."""
        self._made.pop(image, None)

    async def settle(self) -> None:
        """Return when nothing is being prepared."""
        if self._made:
            await asyncio.wait(self._made.values())
