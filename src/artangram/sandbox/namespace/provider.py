"""Makes sandboxes out of namespaces; owns the zygote, the run directory and the snapshots.

- Opening checks the machine against the lowest level the caller accepts, and refuses below it.
- The zygote tells of every sandbox's end; if it dies, its sandboxes die with it and the next
  `create` starts another one.
- Closing ends every sandbox and leaves no process, mount, group or file behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
from pathlib import Path
from typing import Any

from msgspec import structs

from artangram.aio import uncancelled
from artangram.sandbox.capabilities import Ability, Capabilities, IsolationLevel
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.namespace import images
from artangram.sandbox.namespace.cgroups import Groups, find_hierarchies
from artangram.sandbox.namespace.compiled import WAIT_S, InitBuild
from artangram.sandbox.namespace.cores import cores_for
from artangram.sandbox.namespace.launch import ZygoteTraits
from artangram.sandbox.namespace.localprovider import PreparedImages
from artangram.sandbox.namespace.loopdisk import has_disks, open_disk
from artangram.sandbox.namespace.rundir import RunDir, default_state_dir
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.namespace.traits import LARGEST_FILE, NO_CORE, OPEN_FILES, Traits
from artangram.sandbox.namespace.zygoteprovider import ZygoteProvider
from artangram.sandbox.network import HOST_NETWORK
from artangram.sandbox.offers import check_offered
from artangram.sandbox.probe import explain, probe
from artangram.sandbox.protocol import DEFAULT_LIMITS, Image, Limits, Snapshot, Source, TarImage
from artangram.sandbox.user import BOX, SandboxUser

UID_WITHOUT_ROOT = 1000
IN_MEMORY_MB = 16
"""Of a sandbox whose files are on disk: `/dev/shm`, and the places it is mounted at."""
MAX_STARTING = 8
"""More sandboxes made at once only wait for the kernel's locks."""


class NamespaceProvider(ZygoteProvider):
    """See `protocol.SandboxProvider`. Make it with `open`."""

    kind = "namespace"

    def __init__(
        self,
        capabilities: Capabilities,
        run_dir: RunDir,
        groups: Groups | None,
        *,
        library: str = "",
        building: InitBuild | None = None,
    ) -> None:
        # Where cores are held by affinity alone, no program inside may change it.
        has_cpuset = groups is not None and groups.cpuset is not None
        zygote = ZygoteTraits(own_affinity=has_cpuset, library=library)
        processes = None if groups is None else groups.processes
        super().__init__(run_dir, cores_for(groups), zygote=zygote, processes=processes)
        self.capabilities = capabilities
        self._groups = groups
        self._bases = PreparedImages(self._prepare)
        self._starting = asyncio.Semaphore(MAX_STARTING)
        self._building = building
        if building is not None:
            building.when_late(self._zygote.use_library)

    @classmethod
    async def open(
        cls,
        *,
        lowest: IsolationLevel = IsolationLevel.NAMESPACES,
        state_dir: Path | None = None,
        keep_for: str = "",
        compiled: bool = True,
    ) -> NamespaceProvider:
        """Check the machine and start. `NotCapable` when its level is below `lowest`.

        The next provider with this `keep_for` has its named snapshots; without it they go.
        Without `compiled`, or until the C init is built, Python serves inside; only speed differs.
        """
        found = await asyncio.to_thread(probe)
        if found.level < max(lowest, IsolationLevel.NAMESPACES):
            raise NotCapable(explain(found, max(lowest, IsolationLevel.NAMESPACES)))
        run_dir = await asyncio.to_thread(
            RunDir, state_dir or default_state_dir(), kind=cls.kind, keep_for=keep_for
        )
        building = InitBuild(run_dir.state_dir) if compiled else None
        library = await building.within(WAIT_S) if building is not None else ""
        groups = None
        if found.level >= IsolationLevel.CGROUPS:
            groups = Groups(find_hierarchies(), run_dir.owner)
            run_dir.name_groups(groups.directories)
            groups.open()
        found = structs.replace(found, abilities=_abilities())
        return cls(found, run_dir, groups, library=library, building=building)

    def __repr__(self) -> str:
        return f"<NamespaceProvider {self.capabilities.level.name}: {len(self.live)} sandboxes>"

    async def create(
        self, source: Source, *, limits: Limits = DEFAULT_LIMITS, user: SandboxUser = BOX
    ) -> LocalSandbox:
        self._check_open()
        check_offered(self, source, limits, user)
        traits = dataclasses.replace(self._traits(source, limits), user=user)
        base = await self._bases.of(traits.image)
        if isinstance(source, Snapshot):
            self._snapshots.check_base(source, await self._base_of(traits.image))
        async with self._starting:
            self._check_open()  # It may have been closed while we waited.
            if limits.storage == "memory":
                return await self._ready(self._start(traits, self._plan(traits, base)))
            disks = self._run_dir.path / "disks"
            device, held = await uncancelled(asyncio.to_thread(open_disk, disks, limits))
            try:
                plan = self._plan(traits, base) | {"disk": device}
                return await self._ready(self._start(traits, plan))
            finally:
                os.close(held)

    def _traits(self, source: Source, limits: Limits) -> Traits:
        name = f"box-{next(self._numbers)}"
        groups = self._groups.of(name, limits) if self._groups else None
        if isinstance(source, Snapshot):
            stored = self._snapshots.get(source)
            # Siblings share a user: the files of the snapshot are its own.
            image, uid, layers = stored.traits.image, stored.traits.uid, stored.layers
        else:
            image, uid, layers = source, next(self._uids), ()
        if not self._is_root:
            uid = UID_WITHOUT_ROOT
        return Traits(name=name, image=image, limits=limits, uid=uid, layers=layers, groups=groups)

    async def _base_of(self, image: Image) -> str:
        return (await self._bases.of(image)).layers[-1] if isinstance(image, TarImage) else ""

    async def _prepare(self, image: Image) -> images.Base:
        cache_dir = self._run_dir.state_dir / "images"
        return await asyncio.to_thread(images.prepare, image, cache_dir=cache_dir)

    def _plan(self, traits: Traits, base: images.Base) -> dict[str, Any]:
        limits = traits.limits
        # Limits of one process are hard: no program inside can raise them again.
        rlimits = {
            resource.RLIMIT_CORE: NO_CORE,
            resource.RLIMIT_NOFILE: OPEN_FILES,
            resource.RLIMIT_FSIZE: LARGEST_FILE,
        }
        rlimits |= self.rlimits(processes=limits.processes, memory_mb=limits.memory_mb, disk_mb=0)
        return {
            "name": traits.name,
            "hostname": "box",
            "uid": traits.uid,
            "gid": traits.uid,
            "userns": not self._is_root,
            "network": limits.network == HOST_NETWORK,
            "groups": traits.groups.plan() if traits.groups else [],
            "ooms_file": traits.groups.ooms_file if traits.groups else "",
            "peak_file": traits.groups.peak_file if traits.groups else "",
            "directory": "",
            "stage": str(self._run_dir.path / "stage"),
            "size_mb": limits.disk_mb if limits.storage == "memory" else IN_MEMORY_MB,
            "disk": "",
            "inodes": limits.inodes,
            "layers": [*traits.layers, *base.layers],
            # Without root there is one user only, and it owns what it may own already.
            "own": base.own and self._is_root,
            "binds": list(base.binds),
            "own_proc": True,
            "files": base.files_for(traits.user, traits.uid),
            "homes": list(traits.user.directories),
            "as_root": traits.user.is_root,
            "rlimits": rlimits,
        }

    def rlimits(self, *, processes: int, memory_mb: int, disk_mb: int) -> dict[int, int]:
        if self._groups is not None:
            return {}
        limits = {resource.RLIMIT_NPROC: processes + 1, resource.RLIMIT_AS: memory_mb << 20}
        if disk_mb:
            limits[resource.RLIMIT_FSIZE] = disk_mb << 20
        return limits

    async def _end(self) -> None:
        if self._building is not None:
            await self._building.aclose()
        await super()._end()
        if self._groups is not None:
            await asyncio.to_thread(self._groups.close)

    def on_zygote_gone(self) -> None:
        """Its sandboxes die with it; their groups are left to us."""
        for sandbox in list(self.live.values()):
            sandbox.lose("the zygote is gone")
            self._loop.run_in_executor(None, self._clean_up, sandbox)

    def _clean_up(self, sandbox: LocalSandbox) -> None:
        if sandbox.traits.groups is not None:
            sandbox.traits.groups.remove()
        self._loop.call_soon_threadsafe(self._reap, sandbox.name, "the zygote is gone")


def _abilities() -> frozenset[Ability]:
    """A proxy is made to listen inside by root, and so is a file system on disk."""
    able = {Ability.FILE_IMAGES, Ability.USERS}
    if os.getuid() == 0:
        able.add(Ability.PROXY)
    if has_disks():
        able.add(Ability.DISK)
    return frozenset(able)
