"""Makes sandboxes out of namespaces; owns the zygote, the run directory and the snapshots.

- Opening checks the machine against the lowest rung the caller accepts, and refuses below it.
- The zygote tells of every sandbox's end; if it dies, its sandboxes die with it and the next
  `create` starts another one.
- Closing ends every sandbox and leaves no process, mount, group or file behind.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import os
import random
import resource
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from artangram.sandbox.errors import CreateFailed, NotCapable, SandboxGone
from artangram.sandbox.inside import channel
from artangram.sandbox.inside.zygote import remove_group
from artangram.sandbox.namespace import images
from artangram.sandbox.namespace.cgroups import Groups, find_hierarchies
from artangram.sandbox.namespace.cores import AffinityCores, Cores, GroupCores, Slots
from artangram.sandbox.namespace.launch import start_zygote
from artangram.sandbox.namespace.rundir import RunDir, default_state_dir
from artangram.sandbox.namespace.sandbox import NamespaceSandbox, Traits
from artangram.sandbox.namespace.snapshots import copy_changes
from artangram.sandbox.probe import probe
from artangram.sandbox.protocol import (
    DEFAULT_LIMITS,
    Capabilities,
    Image,
    Limits,
    Rung,
    Snapshot,
    Source,
)

FIRST_UID = 1_900_000_000
UID_BLOCK = 1 << 16
NUM_UID_BLOCKS = 3000
UID_WITHOUT_ROOT = 1000
MAX_STARTING = 8
"""More sandboxes made or ended at once only wait for the kernel's locks."""
OPEN_FILES = 4096


class NamespaceProvider:
    """See `protocol.SandboxProvider`. Make it with `open`."""

    def __init__(self, capabilities: Capabilities, run_dir: RunDir, groups: Groups | None) -> None:
        self.capabilities = capabilities
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.live: dict[str, NamespaceSandbox] = {}
        self._run_dir = run_dir
        self._groups = groups
        self.cores: Cores = _cores_for(groups)
        self._loop = asyncio.get_running_loop()
        self._bases: dict[Image, asyncio.Future[images.Base]] = {}
        self._snapshots: dict[str, Traits] = {}
        self._forgotten: set[str] = set()
        self._numbers = itertools.count(1)
        block = random.SystemRandom().randrange(NUM_UID_BLOCKS)
        self._uids = itertools.count(FIRST_UID + block * UID_BLOCK)
        self._starting = asyncio.Semaphore(MAX_STARTING)
        self._zygote: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._outbox: collections.deque[tuple[Any, socket.socket | None]] = collections.deque()
        self._closed = False

    @classmethod
    async def open(
        cls, *, lowest: Rung = Rung.NAMESPACES, state_dir: Path | None = None
    ) -> NamespaceProvider:
        """Check the machine and start. `NotCapable` when it stands below `lowest`."""
        found = await asyncio.to_thread(probe)
        if found.rung < max(lowest, Rung.NAMESPACES):
            raise NotCapable(_explain(found, max(lowest, Rung.NAMESPACES)))
        run_dir = RunDir(state_dir or default_state_dir())
        groups = None
        if found.rung >= Rung.CGROUPS:
            groups = Groups(find_hierarchies(), run_dir.owner)
            run_dir.name_groups(groups.directories)
            groups.open()
        return cls(found, run_dir, groups)

    def __repr__(self) -> str:
        return f"<NamespaceProvider {self.capabilities.rung.name}: {len(self.live)} sandboxes>"

    @property
    def has_groups(self) -> bool:
        return self._groups is not None

    @property
    def run_path(self) -> Path:
        """The provider's own directory; gone when the provider is."""
        return self._run_dir.path

    @property
    def state_dir(self) -> Path:
        return self._run_dir.path.parent.parent

    @property
    def zygote_pid(self) -> int:
        """0 before the first sandbox."""
        return self._zygote.pid if self._zygote is not None else 0

    async def create(self, source: Source, *, limits: Limits = DEFAULT_LIMITS) -> NamespaceSandbox:
        if self._closed:
            raise SandboxGone("the provider is closed")
        traits = await self._traits(source, limits)
        async with self._starting:
            sandbox = self._start(traits)
            try:
                await sandbox.wait_ready()
            except BaseException as error:
                await sandbox.close()
                if isinstance(error, SandboxGone):
                    raise CreateFailed(str(error)) from error
                raise
        return sandbox

    async def _traits(self, source: Source, limits: Limits) -> Traits:
        name = f"box-{next(self._numbers)}"
        groups = self._groups.of(name, limits) if self._groups else None
        if isinstance(source, Snapshot):
            if source.name not in self._snapshots:
                raise CreateFailed(f"no snapshot {source.name!r}")
            origin = self._snapshots[source.name]
            # Siblings share a user: the files of the snapshot are its own.
            base, uid = origin.base, origin.uid
        else:
            base, uid = await self._base(source), next(self._uids)
        if not self._is_root:
            uid = UID_WITHOUT_ROOT
        return Traits(name=name, base=base, limits=limits, uid=uid, groups=groups)

    @property
    def _is_root(self) -> bool:
        return os.getuid() == 0

    async def _base(self, image: Image) -> images.Base:
        """Prepared once, however many ask at the same time."""
        if image not in self._bases:
            cache_dir = self.state_dir / "images"
            work = asyncio.to_thread(images.prepare, image, cache_dir=cache_dir)
            self._bases[image] = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(self._bases[image])
        except Exception:
            self._bases.pop(image, None)
            raise

    def _start(self, traits: Traits) -> NamespaceSandbox:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        sandbox = NamespaceSandbox(self, traits, ours)
        self.live[traits.name] = sandbox
        self._tell(("create", self._plan(traits)), theirs)
        return sandbox

    def _plan(self, traits: Traits) -> dict[str, Any]:
        limits, base = traits.limits, traits.base
        rlimits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: OPEN_FILES}
        if not self.has_groups:
            # Per process only, but as a hard limit: nobody inside can raise it again.
            rlimits[resource.RLIMIT_NPROC] = limits.processes + 1
            rlimits[resource.RLIMIT_AS] = limits.memory_mb << 20
        return {
            "name": traits.name,
            "hostname": "box",
            "uid": traits.uid,
            "gid": traits.uid,
            "userns": not self._is_root,
            "network": limits.network,
            "groups": traits.groups.plan() if traits.groups else [],
            "ooms_file": traits.groups.ooms_file if traits.groups else "",
            "stage": str(self._run_dir.path / "stage"),
            "size_mb": limits.disk_mb,
            "inodes": limits.inodes,
            "layers": list(base.layers),
            # Without root there is one user only, and it owns what it may own already.
            "own": base.own and self._is_root,
            "binds": list(base.binds),
            "files": base.files_for(traits.uid, traits.uid),
            "rlimits": rlimits,
        }

    def kill(self, sandbox: NamespaceSandbox) -> None:
        """End a sandbox from outside, whatever it does."""
        if self._sock is not None and sandbox.name in self.live:
            self._tell(("kill", sandbox.name))

    async def remember(self, traits: Traits, changes: int) -> Snapshot:
        """Keep a copy of the changed files, open as `changes`, as a layer for siblings."""
        name = f"snapshot-{next(self._numbers)}"
        target = self._run_dir.path / "snapshots" / name
        await asyncio.to_thread(copy_changes, changes, target)
        layers = (str(target), *traits.base.layers)
        base = dataclasses.replace(traits.base, layers=layers)
        self._snapshots[name] = dataclasses.replace(traits, name=name, base=base, groups=None)
        return Snapshot(name=name)

    async def forget(self, snapshot: Snapshot) -> None:
        if self._snapshots.pop(snapshot.name, None) is not None:
            self._forgotten.add(str(self._run_dir.path / "snapshots" / snapshot.name))
            self._remove_forgotten()

    def _remove_forgotten(self) -> None:
        """Drop layers that nobody knows any more and no sandbox stands on."""
        if not self._forgotten:
            return
        known = [*self._snapshots.values(), *(box.traits for box in self.live.values())]
        unused = self._forgotten.difference(*(traits.base.layers for traits in known))
        self._forgotten -= unused
        for path in unused:
            self._loop.run_in_executor(None, shutil.rmtree, path, True)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        ending = asyncio.Semaphore(MAX_STARTING)

        async def end(sandbox: NamespaceSandbox) -> None:
            async with ending:
                await sandbox.close()

        live = [end(sandbox) for sandbox in self.live.values()]
        await asyncio.gather(*live, return_exceptions=True)
        self.cores.close()
        await self._end_zygote()
        if self._groups is not None:
            await asyncio.to_thread(self._groups.close)
        self._run_dir.close()
        os.close(self.null)

    async def _end_zygote(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
        if self._zygote is not None:
            await asyncio.to_thread(self._zygote.wait, 10)

    def _tell(self, message: Any, passed: socket.socket | None = None) -> None:
        """Queue a message to the zygote; `passed` is ours to close once it is sent."""
        if self._sock is None:
            # Where cores are held by affinity alone, nobody inside may change it.
            self._zygote, self._sock = start_zygote(
                self._run_dir.path, lock=self._run_dir.lock, own_affinity=self.has_groups
            )
            self._loop.add_reader(self._sock.fileno(), self._on_zygote)
        self._outbox.append((message, passed))
        self._flush()

    def _flush(self) -> None:
        assert self._sock is not None
        while self._outbox:
            message, passed = self._outbox[0]
            try:
                channel.send(self._sock, message, [passed.fileno()] if passed else [])
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError:
                pass  # it is gone: `_on_zygote` is about to learn that, too
            self._outbox.popleft()
            if passed is not None:
                passed.close()
        self._loop.remove_writer(self._sock.fileno())

    def _on_zygote(self) -> None:
        assert self._sock is not None
        try:
            message, _ = channel.receive(self._sock)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self._on_zygote_gone()
            return
        sandbox = self.live.get(message[1])
        if sandbox is None:
            return
        if message[0] == "born":
            sandbox.pid = message[2]
        elif message[0] == "failed":
            self._bury(sandbox, message[2])
        elif message[0] == "exited":
            sandbox.num_ooms = message[2]
            self._bury(sandbox, "its first process is gone")

    def _bury(self, sandbox: NamespaceSandbox, reason: str) -> None:
        self.live.pop(sandbox.name, None)
        sandbox.lose(reason)
        sandbox.ended.set()
        self._remove_forgotten()

    def _on_zygote_gone(self) -> None:
        """Its sandboxes die with it; their groups are left to us."""
        assert self._sock is not None
        assert self._zygote is not None
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._sock = None
        self._zygote.wait()
        for sandbox in list(self.live.values()):
            sandbox.lose("the zygote is gone")
            self._loop.run_in_executor(None, self._clean_up, sandbox)

    def _clean_up(self, sandbox: NamespaceSandbox) -> None:
        for group, _, _ in sandbox.traits.groups.plan() if sandbox.traits.groups else []:
            remove_group(group)
        self._loop.call_soon_threadsafe(self._bury, sandbox, "the zygote is gone")


def _cores_for(groups: Groups | None) -> Cores:
    if groups is None:
        return AffinityCores()
    return GroupCores() if groups.is_v2 else Slots(groups.cpuset)


def _explain(found: Capabilities, lowest: Rung) -> str:
    missing = "; ".join(f"{f.name}: {f.detail} ({f.how})" for f in found.missing())
    return f"this machine stands on rung {found.rung.name}, asked was {lowest.name}: {missing}"
