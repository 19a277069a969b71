"""The sandboxes of a node by trajectory: made ahead, hibernated when memory is short, resumed.

- A hibernated sandbox is only its changed files on disk: no process, no memory, no mount. It
  resumes for the next run, read or write, with its files and its user; pipes, sockets and
  `/dev/shm` are not files.
- A sandbox with kept or started processes does not hibernate: they cannot be put on disk.
- Ready ones are kept per source and limits, for the last few kinds asked for.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from artangram.aio import uncancelled
from artangram.core.ids import TrajectoryId
from artangram.managers.agent import SandboxSpec
from artangram.managers.providers import NodeProviders
from artangram.sandbox.errors import SandboxGone
from artangram.sandbox.process import OnOutput, SandboxProcess
from artangram.sandbox.protocol import Command, Sandbox, Snapshot
from artangram.sandbox.warm import Warm

MOST_KINDS = 4
"""Kinds of which ready sandboxes are kept; the kind not asked for longest goes first."""
MOST_HIBERNATIONS = 64
"""Each adds a layer to the file tree, and a mount takes some hundreds of them."""


class NodeSandbox:
    """One trajectory's sandbox, running or hibernated."""

    __slots__ = (
        "hibernated",
        "hibernations",
        "num_processes",
        "place",
        "sandbox",
        "turn",
        "used_at",
    )

    def __init__(self, place: SandboxSpec, sandbox: Sandbox) -> None:
        self.place = place
        self.sandbox = sandbox
        self.hibernated: Snapshot | None = None
        self.hibernations = 0
        #: Started processes that have not ended.
        self.num_processes = 0
        #: When the last run there ended; 0 before the first.
        self.used_at = 0.0
        #: Held while it hibernates or resumes, and while files are read or written.
        self.turn = asyncio.Lock()


class NodeSandboxes:
    """Sandboxes by trajectory; see the module."""

    def __init__(self, providers: NodeProviders, *, warm: int = 0) -> None:
        self._providers = providers
        self._num_warm = warm
        self._warm: OrderedDict[SandboxSpec, Warm] = OrderedDict()
        self.all: dict[TrajectoryId, NodeSandbox] = {}

    def __repr__(self) -> str:
        return f"<NodeSandboxes: {len(self.all)}, {self.num_hibernated} hibernated>"

    @property
    def num_hibernated(self) -> int:
        return sum(held.hibernated is not None for held in self.all.values())

    def exists(self, trajectory: TrajectoryId) -> bool:
        """Is there a sandbox that runs or is hibernated?"""
        held = self.all.get(trajectory)
        return held is not None and (held.hibernated is not None or held.sandbox.is_alive)

    async def make(self, trajectory: TrajectoryId, place: SandboxSpec) -> Sandbox:
        """A new sandbox; what is left of an earlier one goes."""
        await self.remove(trajectory)
        sandbox = await self._made(place)
        self.all[trajectory] = NodeSandbox(place, sandbox)
        return sandbox

    async def _made(self, place: SandboxSpec) -> Sandbox:
        provider = self._providers.of(place)
        if not self._num_warm or isinstance(place.source, Snapshot):
            return await provider.create(place.source, limits=place.limits, user=place.user)
        warm = self._warm.get(place)
        if warm is None:
            warm = Warm(
                provider,
                place.source,
                size=self._num_warm,
                limits=place.limits,
                user=place.user,
            )
            self._warm[place] = warm
        self._warm.move_to_end(place)
        if len(self._warm) > MOST_KINDS:
            await self._warm.popitem(last=False)[1].close()
        return await warm.claim()

    @asynccontextmanager
    async def using(self, trajectory: TrajectoryId) -> AsyncIterator[Sandbox]:
        """The sandbox, which does not hibernate meanwhile. Raises `SandboxGone` without one."""
        held = self.all.get(trajectory)
        if held is None:
            raise SandboxGone(f"{trajectory} has no sandbox here")
        async with held.turn:
            await self._resume(held)
            yield held.sandbox

    @asynccontextmanager
    async def process(
        self, trajectory: TrajectoryId, command: Command, on_output: OnOutput
    ) -> AsyncIterator[SandboxProcess]:
        """Start a command in a sandbox, which does not hibernate until it has ended."""
        held = self.all[trajectory]
        held.num_processes += 1
        try:
            async with self.using(trajectory) as sandbox:
                process = await sandbox.start(command, on_output)
            try:
                yield process
            except asyncio.CancelledError:
                process.end()
                await uncancelled(process.wait())
                raise
        finally:
            held.num_processes -= 1

    async def resumed(self, trajectory: TrajectoryId) -> Sandbox:
        """The sandbox, resumed if need be. The caller keeps it from hibernating."""
        held = self.all[trajectory]
        if held.hibernated is not None:
            async with held.turn:
                await self._resume(held)
        return held.sandbox

    async def _resume(self, held: NodeSandbox) -> None:
        if held.hibernated is None:
            return
        place, provider = held.place, self._providers.of(held.place)
        held.sandbox = await provider.create(held.hibernated, limits=place.limits, user=place.user)
        snapshot, held.hibernated = held.hibernated, None
        await provider.forget(snapshot)

    async def hibernate(self, trajectory: TrajectoryId) -> bool:
        """Reduce an idle sandbox to its files. False if it must keep running."""
        held = self.all[trajectory]
        async with held.turn:
            if (
                held.hibernated is not None
                or held.num_processes
                or held.sandbox.has_kept
                or held.hibernations >= MOST_HIBERNATIONS
            ):
                return False
            if not held.sandbox.is_alive:
                return False
            held.hibernated = await held.sandbox.snapshot()
            held.hibernations += 1
            await held.sandbox.close()
        return True

    async def remove(self, trajectory: TrajectoryId) -> None:
        """Nothing of the trajectory's sandbox is left."""
        held = self.all.pop(trajectory, None)
        if held is None:
            return
        async with held.turn:
            await held.sandbox.close()
            if held.hibernated is not None:
                await self._providers.of(held.place).forget(held.hibernated)

    async def aclose(self) -> None:
        """Close what is ready; the provider closes the rest."""
        while self._warm:
            await self._warm.popitem()[1].close()
