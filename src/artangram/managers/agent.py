"""The contract of a node agent: how the orchestrator reaches what runs on a node.

- *Tells* (`start`, `resize`, `stop`, `acknowledge`) return at once and arrive in order. Every
  `start` is followed by exactly one `RunResult`, however the run ended.
- *Asks* (`attach`, `ping`, `examine`, `feed`, `read`, `write`, `snapshot`, `snapshots`, `forget`,
  `close`) are awaited. They raise `OSError` for a path or a closed stdin, `SandboxError` for a
  place that failed, `ValueError` for a caller's mistake.
- An agent may bound what it takes and gives at once: a longer ask is a `ValueError`, a longer start
  ends as `FAILED`, longer output is cut off and counted as truncated.
- A trajectory's sandbox is made by the first run that needs it and lives until `close`.
- An `RunResult` is repeated at every `attach` until it was acknowledged: an orchestrator that
  dies misses none.
- When an agent is gone, everything on it is gone; its listener hears `on_lost` once.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.lease import Lease
from artangram.functions.function import FunctionRunner
from artangram.managers.call import CallResult
from artangram.managers.examination import NodeExamination
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.offers import ProviderOffer
from artangram.sandbox.process import ProcessBegan, ProcessInput
from artangram.sandbox.protocol import (
    DEFAULT_LIMITS,
    MAX_READ_BYTES,
    Command,
    CommandResult,
    HostImage,
    Limits,
    Output,
    Snapshot,
    Source,
)
from artangram.sandbox.snapshot import HELD, SnapshotInfo, SnapshotTerms
from artangram.sandbox.user import BOX, SandboxUser


class AgentGone(SandboxError):
    """The agent, and with it everything that ran there, is gone."""


class SandboxSpec(Struct, frozen=True, kw_only=True):
    """What the sandbox of a trajectory is made from."""

    source: Source = HostImage()
    limits: Limits = DEFAULT_LIMITS
    user: SandboxUser = BOX
    provider: str = ""
    """The kind that makes it; empty for the usual one of its node."""


class Run(Struct, frozen=True, kw_only=True):
    """One attempt at an action. Without a command it only makes the sandbox."""

    lease: Lease
    trajectory: TrajectoryId
    place: SandboxSpec
    command: Command | None
    expects_files: bool = False
    """Earlier runs left files: without that very sandbox it has to fail, not to start afresh."""
    streams: bool = False
    """Tell what it prints as it comes; its result holds all of it, too."""
    limit_s: float | None = None
    """Its time limit where that passes at the pace of its lease; the command has one by the clock,
    too."""

    @property
    def id(self) -> "RunId":
        return RunId(self.lease.action_id, self.lease.attempt)


class RunId(Struct, frozen=True):
    action_id: ActionId
    attempt: int


class RunResult(Struct, frozen=True, kw_only=True):
    """A run has stopped using its lease."""

    run: RunId
    outcome: Outcome
    reason: str = ""
    turned_away: bool = False
    """Nothing was done: the callee refused the call before it began."""
    began_at: float | None = None
    """When its program began, by the listener's clock; `None` if it never did."""
    result: CommandResult | None = None
    """What a command left."""
    answer: CallResult | None = None
    """What a call was answered."""


class NodeInventory(Struct, frozen=True, kw_only=True, tag="inventory"):
    """What is on a node."""

    incarnation: str
    """Names this life of the agent: a new one means that everything from before is gone."""
    trajectories: tuple[TrajectoryId, ...] = ()
    running: tuple[RunId, ...] = ()
    ended: tuple[RunResult, ...] = ()
    """Ends that are not acknowledged yet."""
    offers: tuple[ProviderOffer, ...] = ()
    """Its providers, the usual one first; none if it does not say."""


class Population(Struct, frozen=True, kw_only=True, tag="population"):
    """How many sandboxes a node has."""

    sandboxes: int = 0
    hibernated: int = 0
    """Those of them that keep their files but no process."""


OnPrinted = Callable[[Output | ProcessBegan], None]


class Listener(Protocol):
    """Hears what happens on a node."""

    def on_ended(self, node: NodeId, ended: RunResult) -> None: ...

    def on_lost(self, node: NodeId, reason: str) -> None: ...

    def on_output(self, run: RunId, output: Output | ProcessBegan) -> None:
        """A run that streams printed this. No more of it comes than its `output_bytes`.

        A started process tells once that it began; its output is bounded by what was not taken.
        """
        ...


class SnapshotArchive(Struct, frozen=True, kw_only=True, tag="archive"):
    """A snapshot as one file."""

    size_bytes: int
    sha256: str


class SnapshotArchives(Protocol):
    """How snapshots leave a node and come to another; each verb may be asked again.

    Raises `SandboxError`.
    """

    async def pack(self, snapshot: Snapshot) -> SnapshotArchive:
        """Have its archive ready to be read."""
        ...

    async def read(self, snapshot: Snapshot, offset: int) -> bytes:
        """The next part of what was packed; empty at its end."""
        ...

    async def write(self, snapshot: Snapshot, offset: int, *, data: bytes) -> None:
        """A part of what another node packed."""
        ...

    async def adopt(self, snapshot: Snapshot, archive: SnapshotArchive) -> None:
        """All parts are here: from now on this node has the snapshot."""
        ...


class NodeAgent(Protocol):
    """The verbs of an agent; see the module."""

    @property
    def node(self) -> NodeId: ...

    @property
    def offers(self) -> tuple[ProviderOffer, ...]:
        """Its providers, the usual one first; none before it was attached."""
        ...

    @property
    def archives(self) -> SnapshotArchives: ...

    @property
    def functions(self) -> FunctionRunner | None:
        """Calls functions there; `None` of an agent in the orchestrator's own process."""
        ...

    async def attach(self, listener: Listener) -> NodeInventory:
        """From now on `listener` hears; what ended before is in the inventory."""
        ...

    async def ping(self) -> Population:
        """Answer if it is there; `AgentGone` if not."""
        ...

    async def examine(self, data: bytes = b"") -> NodeExamination:
        """What the node says about itself, and `data` back."""
        ...

    def start(self, run: Run) -> None: ...

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        """The run of `action_id` has these cores now; nothing happens if it has ended.

        Without any it is preempted: it may use what others leave of those it had. Of its time
        limit, `pace` seconds pass in a second from now on.
        """
        ...

    def stop(self, action_id: ActionId) -> None:
        """End a run early. Its `RunResult` comes when it is gone."""
        ...

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None:
        """Returns when the started process has taken it; `OSError` if it takes no input."""
        ...

    async def signal(self, action_id: ActionId, number: int) -> None:
        """Send a signal to a started process; nothing happens if it has ended."""
        ...

    def acknowledge(self, run: RunId) -> None:
        """The end of `run` need not be told again."""
        ...

    async def read(
        self, trajectory: TrajectoryId, path: str, *, max_bytes: int = MAX_READ_BYTES
    ) -> bytes: ...

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None: ...

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms = HELD) -> Snapshot: ...

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """What it keeps for siblings, of all its providers."""
        ...

    async def forget(self, snapshot: Snapshot) -> bool:
        """False if there is no such snapshot."""
        ...

    async def close(self, trajectory: TrajectoryId) -> None:
        """Return when nothing of the trajectory is left; what runs there ends first."""
        ...

    async def aclose(self) -> None:
        """Let go of the node: an agent in this process ends with all on it."""
        ...
