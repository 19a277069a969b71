"""Makes sandboxes that are only a directory and processes that one init looks after.

- IsolationLevel `SECCOMP`: calls are filtered and cores held. IsolationLevel `PROCESS`: neither.
  On both, files, processes and network of the machine are in sight; `capabilities` says so.
- `/work` in `read`, `write` and `cwd` means the sandbox's own directory, which programs find as
  their working directory, HOME and TMPDIR. Any other absolute path is the machine's.
- Under root every sandbox is a user of its own; otherwise it is the user of this process.
- Orphans are adopted by init, and by the zygote when init is killed; both end them.
"""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from typing import Any

from artangram.aio import uncancelled
from artangram.sandbox.capabilities import PROMISES, Capabilities, IsolationLevel, Promise
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.inside.zygote import remove_all
from artangram.sandbox.namespace.cores import AffinityCores
from artangram.sandbox.namespace.launch import ZygoteTraits
from artangram.sandbox.namespace.layers import copy_changes
from artangram.sandbox.namespace.localprovider import drained
from artangram.sandbox.namespace.rundir import RunDir, default_state_dir
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.namespace.traits import NO_CORE, OPEN_FILES, Traits
from artangram.sandbox.namespace.zygoteprovider import ZygoteProvider
from artangram.sandbox.offers import check_offered
from artangram.sandbox.probe import explain, probe
from artangram.sandbox.protocol import DEFAULT_LIMITS, HostImage, Limits, Snapshot, Source
from artangram.sandbox.user import BOX, SandboxUser

PASS_THROUGH = 0o711
MAX_MAKING = 8
"""Sandboxes run as users of their own and must reach their directory, but list no other."""


class PlainProvider(ZygoteProvider):
    """See `protocol.SandboxProvider`. Make it with `open`."""

    kind = "plain"

    def __init__(self, capabilities: Capabilities, run_dir: RunDir) -> None:
        zygote = ZygoteTraits(plain=True, filtered=capabilities.level >= IsolationLevel.SECCOMP)
        super().__init__(run_dir, AffinityCores(), zygote=zygote)
        self.capabilities = capabilities
        self._boxes = run_dir.path / "boxes"
        self._boxes.mkdir(mode=PASS_THROUGH)
        self._making = asyncio.Semaphore(MAX_MAKING)
        if self._is_root:
            run_dir.path.chmod(PASS_THROUGH)
            run_dir.path.parent.chmod(PASS_THROUGH)

    @classmethod
    async def open(
        cls,
        *,
        level: IsolationLevel = IsolationLevel.SECCOMP,
        state_dir: Path | None = None,
        keep_for: str = "",
    ) -> PlainProvider:
        """Start at exactly this level; `NotCapable` when the machine does not reach it."""
        if level > IsolationLevel.SECCOMP:
            raise ValueError(f"plain processes cannot provide level {level.name}")
        found = await asyncio.to_thread(probe)
        if found.level < level or not found.has("linux"):
            raise NotCapable(explain(found, level))
        promises = PROMISES[level]
        if os.getuid() == 0:
            promises |= {Promise.PROCESS_LIMIT}  # counted per user, and each is one
        run_dir = await asyncio.to_thread(
            RunDir, state_dir or default_state_dir(), kind=cls.kind, keep_for=keep_for
        )
        return cls(Capabilities(level=level, features=found.features, promises=promises), run_dir)

    def __repr__(self) -> str:
        return f"<PlainProvider {self.capabilities.level.name}: {len(self.live)} sandboxes>"

    async def create(
        self, source: Source, *, limits: Limits = DEFAULT_LIMITS, user: SandboxUser = BOX
    ) -> LocalSandbox:
        self._check_open()
        check_offered(self, source, limits, user)
        traits = self._traits(source, limits)
        async with self._making:
            self._check_open()  # It may have been closed while we waited.
            try:
                await uncancelled(asyncio.to_thread(self._make_home, traits))
            except BaseException:
                await uncancelled(asyncio.to_thread(remove_all, str(self._boxes / traits.name)))
                raise
        self._check_open()
        return await self._ready(self._start(traits, self._plan(traits)))

    def _traits(self, source: Source, limits: Limits) -> Traits:
        name = f"box-{next(self._numbers)}"
        uid = next(self._uids) if self._is_root else os.getuid()
        work_dir = str(self._boxes / name / "work")
        layers: tuple[str, ...] = ()
        if isinstance(source, Snapshot):
            # The newest layer holds all: there is no overlay, so every copy is a whole one.
            layers = self._snapshots.get(source).layers[:1]
        return Traits(
            name=name, image=HostImage(), limits=limits, uid=uid, layers=layers, work_dir=work_dir
        )

    def _make_home(self, traits: Traits) -> None:
        work_dir = Path(traits.work_dir)
        work_dir.parent.mkdir(mode=PASS_THROUGH)
        if traits.layers:
            layer = os.open(traits.layers[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                copy_changes(layer, work_dir)
            finally:
                os.close(layer)
        else:
            work_dir.mkdir(mode=0o700)
        if self._is_root:
            _give_away(work_dir, traits.uid)

    async def _settle(self) -> None:
        """What is being copied would outlast the directory that it is copied to."""
        await drained(self._making, MAX_MAKING)

    def _plan(self, traits: Traits) -> dict[str, Any]:
        limits = traits.limits
        rlimits = {resource.RLIMIT_CORE: NO_CORE, resource.RLIMIT_NOFILE: OPEN_FILES}
        rlimits |= self.rlimits(
            processes=limits.processes, memory_mb=limits.memory_mb, disk_mb=limits.disk_mb
        )
        return {
            "name": traits.name,
            "uid": traits.uid,
            "gid": traits.uid,
            "userns": False,
            "network": True,
            "groups": [],
            "ooms_file": "",
            "directory": traits.work_dir,
            "own": False,
            "as_root": False,
            "rlimits": rlimits,
        }

    def rlimits(self, *, processes: int, memory_mb: int, disk_mb: int) -> dict[int, int]:
        limits = {resource.RLIMIT_AS: memory_mb << 20}
        if disk_mb:
            limits[resource.RLIMIT_FSIZE] = disk_mb << 20
        if self._is_root:
            # Otherwise the kernel would count everything the user runs, not the sandbox's.
            limits[resource.RLIMIT_NPROC] = processes + 1
        return limits

    def _standing(self) -> tuple[Traits, ...]:
        return ()  # every sandbox has a copy of its own

    def on_zygote_gone(self) -> None:
        """Each init sees its socket close, ends what is below it, and itself."""
        for name in list(self.live):
            self._reap(name, "the zygote is gone")

    def _reap(self, name: str, reason: str) -> None:
        self._settle_start(name)
        sandbox = self.live.pop(name, None)
        if sandbox is not None:
            sandbox.lose(reason)
            self._loop.run_in_executor(None, self._clean_up, sandbox, reason)

    def _clean_up(self, sandbox: LocalSandbox, reason: str) -> None:
        remove_all(str(self._boxes / sandbox.name))
        self._loop.call_soon_threadsafe(sandbox.reap, reason)


def _give_away(tree: Path, uid: int) -> None:
    """Make `uid` the owner of a tree that no other process can change meanwhile."""
    for directory, names, files in os.walk(tree):
        for name in (*names, *files):
            os.chown(os.path.join(directory, name), uid, uid, follow_symlinks=False)
    os.chown(tree, uid, uid)
