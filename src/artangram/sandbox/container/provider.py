"""Makes sandboxes out of containers; the engine starts them, our init serves them.

- The container's first process is ours. It connects to a socket shown to it, learns its plan,
  builds the same root as any sandbox has over the image's files, and drops every right.
- Memory, processes, freezing and cores are held by our own control groups, into which the
  container is moved before it may run anything: an engine needs no call for any of them.
- A container ends when its socket closes, so it does when we are killed; a guard ends those
  that are frozen, and the engine removes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import resource
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

from artangram.aio import uncancelled
from artangram.sandbox.capabilities import Ability, Capabilities, Feature, IsolationLevel
from artangram.sandbox.container import runtime
from artangram.sandbox.container.engine import (
    HOW,
    ContainerEngine,
    ContainerSpec,
    EngineBase,
    find_engine,
    prepare_image,
)
from artangram.sandbox.container.service import PodmanService
from artangram.sandbox.errors import CreateFailed, NotCapable
from artangram.sandbox.inside import channel, linux
from artangram.sandbox.inside.setup import join_groups, make_groups
from artangram.sandbox.inside.zygote import count_ooms
from artangram.sandbox.namespace.cgroups import Groups, SandboxCgroups, find_hierarchies
from artangram.sandbox.namespace.compiled import WAIT_S, InitBuild
from artangram.sandbox.namespace.cores import cores_for
from artangram.sandbox.namespace.images import HOSTS, user_files
from artangram.sandbox.namespace.launch import start_guard
from artangram.sandbox.namespace.localprovider import LocalProvider, PreparedImages, drained
from artangram.sandbox.namespace.rundir import RunDir, default_state_dir
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.namespace.traits import LARGEST_FILE, NO_CORE, OPEN_FILES, Traits
from artangram.sandbox.network import HOST_NETWORK
from artangram.sandbox.offers import check_offered
from artangram.sandbox.probe import explain, probe
from artangram.sandbox.protocol import DEFAULT_LIMITS, EngineImage, Image, Limits, Snapshot, Source
from artangram.sandbox.user import BOX, SandboxUser

MAX_STARTING = 4
CONNECT_TIMEOUT_S = 20.0
LOOK_S = 0.5
LAYERS = runtime.INSIDE + "/layers"
STAGE = runtime.INSIDE + "/stage"
OFFLINE, ONLINE = "none", "bridge"


class ContainerProvider(LocalProvider):
    """See `protocol.SandboxProvider`. Make it with `open`."""

    kind = "container"

    def __init__(
        self,
        capabilities: Capabilities,
        run_dir: RunDir,
        groups: Groups,
        *,
        engine: ContainerEngine,
        service: PodmanService | None,
    ) -> None:
        self.capabilities = capabilities
        super().__init__(run_dir, cores_for(groups), processes=groups.processes)
        self._groups = groups
        self._engine = engine
        self._service = service
        self._bases = PreparedImages(self._prepare)
        self._imported: list[str] = []
        self._starting = asyncio.Semaphore(MAX_STARTING)
        self._guard, self._alive = start_guard(run_dir.path, lock=run_dir.lock)

    @classmethod
    async def open(
        cls, *, state_dir: Path | None = None, keep_for: str = "", engine_url: str = ""
    ) -> ContainerProvider:
        """Find or start an engine. `NotCapable` without one, or without root and its groups."""
        found = await asyncio.to_thread(probe)
        if found.level < IsolationLevel.CGROUPS:
            raise NotCapable(explain(found, IsolationLevel.CGROUPS))
        url = engine_url or find_engine()
        if not url and not shutil.which("podman"):
            raise NotCapable(f"no container engine on this machine: {HOW}")
        async with contextlib.AsyncExitStack() as undo:
            run_dir = await asyncio.to_thread(
                RunDir, state_dir or default_state_dir(), kind=cls.kind, keep_for=keep_for
            )
            undo.callback(run_dir.close)
            service = None if url else PodmanService(run_dir.path)
            if service is not None:
                undo.callback(service.close)
                url = await asyncio.to_thread(service.wait_ready)
            engine = await asyncio.to_thread(ContainerEngine.connect, url, owner=run_dir.path)
            undo.callback(engine.close)
            await asyncio.to_thread(engine.sweep)
            building = InitBuild(run_dir.state_dir)
            library = await building.within(WAIT_S)
            await building.aclose()  # Containers take the runtime as it is packed now.
            await asyncio.to_thread(runtime.pack, run_dir.path / "runtime", library=library)
            groups = Groups(find_hierarchies(), run_dir.owner)
            run_dir.name_groups(groups.directories)
            groups.open()
            feature = Feature(name="engine", available=True, detail=engine.description)
            capabilities = Capabilities(
                level=found.level,
                features=(*found.features, feature),
                promises=found.promises,
                abilities=frozenset(Ability) - {Ability.DISK},
            )
            undo.pop_all()
        return cls(capabilities, run_dir, groups, engine=engine, service=service)

    def __repr__(self) -> str:
        return f"<ContainerProvider {self.capabilities.level.name}: {len(self.live)} sandboxes>"

    async def create(
        self, source: Source, *, limits: Limits = DEFAULT_LIMITS, user: SandboxUser = BOX
    ) -> LocalSandbox:
        self._check_open()
        check_offered(self, source, limits, user)
        traits = dataclasses.replace(self._traits(source, limits), user=user)
        base = await self._bases.of(traits.image)
        if isinstance(traits.image, EngineImage):
            self._bases.forget(traits.image)  # a name may mean another image tomorrow
            # Siblings of its snapshots must stand on this very image, whatever its name means then.
            traits = dataclasses.replace(traits, image=EngineImage(name=base.image))
        async with self._starting:
            self._check_open()  # It may have been closed while we waited.
            return await self._ready(await self._start(traits, base))

    def _traits(self, source: Source, limits: Limits) -> Traits:
        name = f"artangram-{self._run_dir.owner}-{next(self._numbers)}"
        groups = self._groups.of(name, limits)
        if isinstance(source, Snapshot):
            stored = self._snapshots.get(source)
            return dataclasses.replace(
                stored.traits, name=name, limits=limits, layers=stored.layers, groups=groups
            )
        return Traits(name=name, image=source, limits=limits, uid=next(self._uids), groups=groups)

    async def _prepare(self, image: Image) -> EngineBase:
        base = await asyncio.to_thread(
            prepare_image,
            image,
            self._engine,
            cache_dir=self._run_dir.state_dir / "images",
            name=f"image-{next(self._numbers)}",
        )
        if not isinstance(image, EngineImage):
            self._imported.append(base.image)
        return base

    async def _start(self, traits: Traits, base: EngineBase) -> LocalSandbox:
        control = self._run_dir.path / "control" / traits.name
        control.mkdir(parents=True)
        listener = _listen(control)
        try:
            wanted = self._wanted(traits, base, control)
            await asyncio.to_thread(self._engine.start, wanted)
            sock = await self._accept(listener, traits.name)
        except BaseException:
            await asyncio.to_thread(self._engine.remove, traits.name)
            raise
        finally:
            listener.close()
            shutil.rmtree(control)
        return await self._adopt(traits, base, sock)

    def _wanted(self, traits: Traits, base: EngineBase, control: Path) -> ContainerSpec:
        layers = {_layer(index): path for index, path in enumerate(traits.layers)}
        return ContainerSpec(
            name=traits.name,
            image=base.image,
            command=runtime.command(),
            mounts={
                runtime.RUNTIME: str(self._run_dir.path / "runtime"),
                runtime.CONTROL: str(control),
                STAGE: str(self._run_dir.path / "stage"),
                # What the image wants loaded into every program is not for ours.
                "/etc/ld.so.preload": "/dev/null",
                **{inside: host for host, inside in base.binds},
                **layers,
            },
            network=ONLINE if traits.limits.network == HOST_NETWORK else OFFLINE,
        )

    async def _accept(self, listener: socket.socket, name: str) -> socket.socket:
        """The first process reports; or it ended before it could."""
        gives_up_at = self._loop.time() + CONNECT_TIMEOUT_S
        while self._loop.time() < gives_up_at:
            with contextlib.suppress(TimeoutError):
                sock, _ = await asyncio.wait_for(self._loop.sock_accept(listener), LOOK_S)
                return sock
            if not await asyncio.to_thread(self._engine.is_running, name):
                break
        raise CreateFailed("the container's first process did not report")

    async def _adopt(self, traits: Traits, base: EngineBase, sock: socket.socket) -> LocalSandbox:
        """Put the waiting process under our limits, then tell it what to become."""
        pid = _peer(sock)
        sandbox = LocalSandbox(self, traits, sock)
        sandbox.pid = pid
        self.live[traits.name] = sandbox
        assert traits.groups is not None
        try:
            ended = os.pidfd_open(pid)
            self._loop.add_reader(ended, self._on_ended, sandbox, ended)
            await asyncio.to_thread(_limit, traits.groups, pid)
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, pid, linux.URGENT)
            channel.send(sock, self._plan(traits, base))
        except BaseException as error:
            await uncancelled(sandbox.close())
            if isinstance(error, OSError):
                raise CreateFailed(f"the container cannot be limited: {error}") from error
            raise
        return sandbox

    def _plan(self, traits: Traits, base: EngineBase) -> dict[str, Any]:
        uid = traits.uid
        assert traits.groups is not None
        return {
            "hostname": "box",
            "uid": uid,
            "gid": uid,
            "userns": False,
            "network": True,  # as the engine made it
            "groups": [],  # joined already
            "directory": "",
            "stage": STAGE,
            "size_mb": traits.limits.disk_mb,
            "inodes": traits.limits.inodes,
            "layers": [*map(_layer, range(len(traits.layers))), "/"],
            "own": False,
            "own_affinity": True,
            "binds": [(inside, inside) for _, inside in base.binds],
            "own_proc": False,
            "files": {
                "/etc/hosts": HOSTS,
                **base.files,
                **user_files(traits.user, uid),
            },
            "homes": list(traits.user.directories),
            "disk": "",
            "as_root": traits.user.is_root,
            "rlimits": {
                resource.RLIMIT_CORE: NO_CORE,
                resource.RLIMIT_NOFILE: OPEN_FILES,
                resource.RLIMIT_FSIZE: LARGEST_FILE,
            },
        }

    def rlimits(self, *, processes: int, memory_mb: int, disk_mb: int) -> dict[int, int]:
        """None: control groups limit all processes together."""
        return {}

    def kill(self, sandbox: LocalSandbox) -> None:
        if sandbox.name in self.live:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sandbox.pid, linux.SIGKILL)

    def _on_ended(self, sandbox: LocalSandbox, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        assert sandbox.traits.groups is not None
        sandbox.num_ooms = count_ooms(sandbox.traits.groups.ooms_file)
        sandbox.lose("its first process is gone")
        self._loop.run_in_executor(None, self._clean_up, sandbox)

    def _clean_up(self, sandbox: LocalSandbox) -> None:
        self._engine.remove(sandbox.name)
        assert sandbox.traits.groups is not None
        sandbox.traits.groups.remove()
        self._loop.call_soon_threadsafe(self._reap, sandbox.name, "its first process is gone")

    async def close(self) -> None:
        if self._is_closed:
            return
        await super().close()
        os.close(self._alive)
        await asyncio.to_thread(self._guard.wait)

    async def _settle(self) -> None:
        """What the engine has begun can be ended only when it is done."""
        await self._bases.settle()
        await drained(self._starting, MAX_STARTING)

    async def _end(self) -> None:
        await asyncio.to_thread(self._close_engine)
        await asyncio.to_thread(self._groups.close)

    def _close_engine(self) -> None:
        for name in self._imported:
            self._engine.remove_image(name)
        self._engine.close()
        if self._service is not None:
            self._service.close()


def _limit(groups: SandboxCgroups, pid: int) -> None:
    make_groups(groups.plan())
    join_groups(groups.plan(), pid=str(pid))
    groups.compete_as_we_do(pid)


def _layer(index: int) -> str:
    return f"{LAYERS}/{index}"


def _listen(directory: Path) -> socket.socket:
    """A socket in `directory`, however deep that is: by descriptor its name is short."""
    held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"/proc/self/fd/{held}/{os.path.basename(runtime.SOCKET)}")
        listener.listen(1)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(held)
    return listener


def _peer(sock: socket.socket) -> int:
    """The process at the other end, by the number it has here."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
