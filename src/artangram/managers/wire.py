"""What a node agent and its orchestrator say to each other over a link.

Times never travel, lengths do: the two ends need not share a clock. What concerns one trajectory
goes in a stream of its own, so that a long file of one does not delay the start of another.
"""

import msgspec
from msgspec import Struct

from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.functions.function import FunctionSpec
from artangram.link import FAULTS, LinkTerms, worded
from artangram.managers.agent import Run, RunId, RunResult, SnapshotArchive
from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.process import ProcessBegan, ProcessInput
from artangram.sandbox.protocol import MAX_READ_BYTES, Output, Snapshot
from artangram.sandbox.snapshot import HELD, SnapshotTerms

VERSION = 2

MOST_OUTPUT_BYTES = MAX_READ_BYTES
"""What a run may print on one of its two channels; more of it is cut off."""

MOST_BYTES = 2 * MOST_OUTPUT_BYTES + (1 << 20)
"""No record is longer. A run that printed all it may fits."""


class AgentHello(Struct, frozen=True):
    """What an agent says about itself."""

    node: NodeId


class NodeShape(Struct, frozen=True, kw_only=True):
    """What a machine brings to the cluster."""

    cores: tuple[int, ...]
    """By NUMA domain, as the machine numbers them."""
    numa: int
    memory_mb: int
    labels: dict[str, str] = {}
    function_slots: int = 0


class JoinHello(Struct, frozen=True, kw_only=True):
    """What an agent that dials in says about itself."""

    node: NodeId
    machine: str
    """The machine's own name for itself, the same after a restart of the agent."""
    incarnation: str
    token: str
    shape: NodeShape


class Welcome(Struct, frozen=True, kw_only=True):
    """What an orchestrator says to an agent that may join."""

    fence_s: float
    """The agent ends everything by itself after so long without an answer."""


class StartRun(Struct, frozen=True, tag="start"):
    run: Run


class ResizeRun(Struct, frozen=True, tag="resize"):
    action_id: ActionId
    cores: tuple[int, ...]
    pace: float = 1.0


class StopRun(Struct, frozen=True, tag="stop"):
    action_id: ActionId


class Acknowledge(Struct, frozen=True, tag="acknowledge"):
    run: RunId


class Attach(Struct, frozen=True, tag="attach"):
    """Answered with an `NodeInventory` without its ends, which come first, each as `EndFound`."""


class PingAgent(Struct, frozen=True, tag="ping"):
    """Answered with a `Population`."""


class ExamineNode(Struct, frozen=True, tag="examine"):
    """Answered with a `NodeExamination` that holds `data` again."""

    data: bytes


class ReadFile(Struct, frozen=True, tag="read"):
    trajectory: TrajectoryId
    path: str
    max_bytes: int


class WriteFile(Struct, frozen=True, tag="write"):
    trajectory: TrajectoryId
    path: str
    data: bytes


class FeedProcess(Struct, frozen=True, tag="feed"):
    action_id: ActionId
    given: ProcessInput


class SignalProcess(Struct, frozen=True, tag="signal"):
    action_id: ActionId
    number: int


class TakeSnapshot(Struct, frozen=True, tag="snapshot"):
    trajectory: TrajectoryId
    terms: SnapshotTerms = HELD


class ListSnapshots(Struct, frozen=True, tag="snapshots"):
    """Answered with a `SnapshotInfo` for each."""


class ForgetSnapshot(Struct, frozen=True, tag="forget"):
    snapshot: Snapshot


class PackSnapshot(Struct, frozen=True, tag="pack"):
    """Answered with a `SnapshotArchive`."""

    snapshot: Snapshot


class ReadArchive(Struct, frozen=True, tag="read_archive"):
    snapshot: Snapshot
    offset: int


class WriteArchive(Struct, frozen=True, tag="write_archive"):
    snapshot: Snapshot
    offset: int
    data: bytes


class AdoptSnapshot(Struct, frozen=True, tag="adopt"):
    snapshot: Snapshot
    archive: SnapshotArchive


class BeginCall(Struct, frozen=True, tag="begin_call"):
    """Of a function; answered when it has begun."""

    name: str
    """Which the orchestrator made up, and never uses again."""
    spec: FunctionSpec
    body: bytes
    hedged: bool


class AwaitCall(Struct, frozen=True, tag="await_call"):
    """Answered with what the function answered."""

    name: str


class EndCall(Struct, frozen=True, tag="end_call"):
    name: str


class CloseTrajectory(Struct, frozen=True, tag="close"):
    trajectory: TrajectoryId


class LeaveAgent(Struct, frozen=True, tag="leave"):
    """The orchestrator is done: end everything. Its answer is the last."""

    is_dismissed: bool = False
    """The node was drained: a machine that joined does not join again."""


Tell = StartRun | ResizeRun | StopRun | Acknowledge
OfProcess = FeedProcess | SignalProcess
OfFiles = ReadFile | WriteFile | TakeSnapshot | ListSnapshots | ForgetSnapshot
OfArchives = PackSnapshot | ReadArchive | WriteArchive | AdoptSnapshot
OfCalls = BeginCall | AwaitCall | EndCall
Ask = PingAgent | ExamineNode | OfProcess | OfFiles | OfArchives | OfCalls | CloseTrajectory
Request = Tell | Ask | Attach | LeaveAgent


class EndFound(Struct, frozen=True, tag="found"):
    """An end that was not acknowledged: as many as there are come before `Attach` is answered.

    Each travels by itself, for together they may be longer than any record.
    """

    ended: RunResult


class RunEnded(Struct, frozen=True, tag="ended"):
    """`ended.began_at` is replaced by how long ago that was when the run ended."""

    ended: RunResult
    run_s: float | None


class RunPrinted(Struct, frozen=True, tag="printed"):
    run: RunId
    output: Output


class RunBegan(Struct, frozen=True, tag="began"):
    """A process was started."""

    run: RunId
    began: ProcessBegan


Report = EndFound | RunEnded | RunPrinted | RunBegan

_FAULTS = FAULTS.with_kinds(worded("sandbox", SandboxError), worded("gone", SandboxGone))


def agent_terms(silence_s: float | None = None) -> LinkTerms[Request]:
    """Of the agent's end."""
    return LinkTerms(
        name="node agent",
        version=VERSION,
        decode=msgspec.msgpack.Decoder(Request).decode,
        faults=_FAULTS,
        silence_s=silence_s,
        most_record_bytes=MOST_BYTES,
    )


def orchestrator_terms(silence_s: float) -> LinkTerms[Report]:
    """Of the orchestrator's end."""
    return LinkTerms(
        name="node agent",
        version=VERSION,
        decode=msgspec.msgpack.Decoder(Report).decode,
        faults=_FAULTS,
        silence_s=silence_s,
        most_record_bytes=MOST_BYTES,
    )
