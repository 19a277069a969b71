"""What goes into an orchestrator and what comes out, beside the core's own records."""

import asyncio
import math
from enum import StrEnum

import msgspec
from msgspec import Struct, structs

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import ActionId, JobId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Action, ActionRecord, Outcome
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.events import TrajectoryOpened
from artangram.managers.agent import Population, SandboxSpec
from artangram.managers.call import Call, CallResult
from artangram.orchestrator.statusrecords import JobStatus, PoolStatus, RunningStatus
from artangram.sandbox.protocol import Command, CommandResult, Snapshot, check_environ
from artangram.services.service import Service


class Submission(Struct, frozen=True, kw_only=True):
    """An action and what it does. Without a command it only makes its trajectory's sandbox."""

    action: Action
    command: Command | None
    call: Call | None = None
    """What it calls instead of running a command."""
    key: str | None = None
    """The caller's own name for it. The same key twice is the same action, run once."""

    def check_same(self, wanted: "Submission") -> None:
        """Raises `BadInput` if `wanted` has our key but is of another job or asks for other work.

        Estimate, deadline and priority may differ: a caller that asks again knows more and waits
        less.
        """
        if wanted.action.job != self.action.job:
            fix = "begin the keys of every job with its name"
            raise BadInput("key", f"{wanted.key!r} belongs to an action of another job", fix)
        ours = structs.replace(
            self.action,
            id=wanted.action.id,
            work_s=wanted.action.work_s,
            deadline_at=wanted.action.deadline_at,
            priority=wanted.action.priority,
            tokens=wanted.action.tokens,
        )
        if (ours, self.command, self.call) != (wanted.action, wanted.command, wanted.call):
            fix = "ask for exactly the same again, or give other work a key of its own"
            raise BadInput("key", f"{wanted.key!r} belongs to another request of this job", fix)


def image_of(snapshot: Snapshot) -> str:
    """What the scheduler's books call a snapshot: to them it is an image that some nodes have."""
    return f"snapshot:{snapshot.node}:{snapshot.name}"


class Opening(Struct, frozen=True, kw_only=True):
    """A trajectory and where it will live."""

    trajectory: TrajectoryId
    job: JobId = JobId("default")
    task: str = ""
    problem: str = ""
    """What it attempts: actions of siblings are expected to be alike."""
    memory_mb: int = 0
    """To be held for it on its node, if that is more than its sandbox may use."""
    place: SandboxSpec = SandboxSpec()
    environ: dict[str, str] = {}
    """Of all its commands; each may add to it or replace a part."""
    selector: dict[str, str] = {}
    """Labels that its node must have."""
    idle_s: float | None = None
    """Close it when it had no action for this long."""
    lifetime_s: float | None = None
    """Close it this long after it was opened."""
    parent: TrajectoryId | None = None
    """The trajectory that waits for it, if one does."""
    owner: str = ""
    """The client whose heartbeats keep it open; empty for the orchestrator's own process."""

    def __post_init__(self) -> None:
        if self.memory_mb < 0:
            raise BadInput("memory_mb", f"{self.memory_mb} is negative", "give 0 or more")
        check_environ(self.environ)
        for name, limit_s in (("idle_s", self.idle_s), ("lifetime_s", self.lifetime_s)):
            if limit_s is not None and not 0 < limit_s < math.inf:
                raise BadInput(name, f"{limit_s} is not a time limit", "give seconds above 0")

    @property
    def booked_mb(self) -> int:
        """Held for it on its node: no less than its sandbox may use."""
        return max(self.memory_mb, self.place.limits.memory_mb)

    @property
    def image(self) -> str:
        """What the scheduler calls the snapshot that it starts from; empty without one."""
        source = self.place.source
        return image_of(source) if isinstance(source, Snapshot) else ""

    def event(self) -> TrajectoryOpened:
        """What the scheduler is told."""
        return TrajectoryOpened(
            self.trajectory,
            self.booked_mb,
            self.job,
            self.selector,
            self.image,
            idle_s=self.idle_s,
            lifetime_s=self.lifetime_s,
            parent=self.parent,
        )


class Queueing(Struct, frozen=True, kw_only=True):
    """How long the actions of a trajectory have waited for what they need."""

    queued_s: float = 0.0
    """Summed over its actions, those included that wait now."""
    num_waiting: int = 0
    """Actions that wait now: `queued_s` grows by this much per second."""


QUEUEING = "Artangram-Queueing"
"""The header that tells a `Queueing` with every answer about a trajectory."""


class DeployedService(Struct, frozen=True, kw_only=True):
    """A service that was added while the cluster was open; the next life deploys it again."""

    service: Service
    spec: ServiceSpec


class ActionResult(Struct, frozen=True, kw_only=True):
    """How an action ended, whether its program failed or infrastructure did."""

    record: ActionRecord
    """Its times, kind, job and outcome."""
    command: CommandResult | None = None
    """Exit code, output and usage of its program; `None` if it did not run to its end."""
    answer: CallResult | None = None
    """The answer of a call, `None` for a command."""
    core_s: float = 0.0
    """Core-seconds that it held."""

    @property
    def ok(self) -> bool:
        """Did it succeed?"""
        return self.record.outcome is Outcome.SUCCEEDED

    @property
    def action_id(self) -> ActionId:
        return self.record.action_id

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.record.outcome

    @property
    def reason(self) -> str:
        """Why it ended so; empty for a success."""
        return self.record.reason

    @property
    def exit_code(self) -> int | None:
        """Of its program; `None` if it did not run to its end."""
        return None if self.command is None else self.command.exit_code

    @property
    def start_error(self) -> str:
        """Why its program never started, for instance because the sandbox has no such file.

        Empty if it did start. A task with a `start_error` is set up wrongly: do not score it.
        """
        return "" if self.command is None else self.command.start_error

    @property
    def stdout(self) -> str:
        """What it printed, as text; `command.stdout` has the bytes."""
        return "" if self.command is None else self.command.stdout.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return "" if self.command is None else self.command.stderr.decode(errors="replace")

    @property
    def wait_s(self) -> float:
        """Seconds until its resources were free."""
        return self.record.wait_s

    @property
    def overhead_s(self) -> float:
        """Seconds from then until its program started."""
        return self.record.overhead_s

    @property
    def run_s(self) -> float:
        """Seconds that its program ran."""
        return self.record.run_s

    @property
    def act_s(self) -> float:
        """Action completion time: the sum of the three."""
        return self.record.act_s


class Receipt(Struct, frozen=True, kw_only=True):
    """For the caller that submitted: the id to ask with, and a future for the result."""

    action_id: ActionId
    ended: "asyncio.Future[ActionResult]"


class NodeState(StrEnum):
    """May a node get new work?"""

    JOINING = "joining"
    """Soon: its agent is there."""
    TRUSTED = "trusted"
    SUSPECT = "suspect"
    """Not while it does not answer; also one that has not come back since a restart."""
    DRAINING = "draining"
    """Only that of the trajectories that live there; it leaves when it is empty."""


class NodeStatus(Struct, frozen=True, kw_only=True):
    node: str
    state: NodeState = NodeState.TRUSTED
    running: int
    cores_used: int
    cores: int = 0
    memory_used_mb: int = 0
    """What its trajectories may use."""
    memory_mb: int = 0
    labels: dict[str, str] = {}
    population: Population | None = None
    """Its sandboxes; `None` if its agent was not asked or did not answer."""


class WaitingStatus(Struct, frozen=True, kw_only=True):
    """An action that `explain` can be asked about."""

    action: ActionId
    kind: str
    trajectory: TrajectoryId | None
    queued_s: float
    job: JobId = JobId("")
    reason: str = ""
    """Why it waits, in short; empty if it was not asked."""


class ServiceStatus(Struct, frozen=True, kw_only=True):
    service: ServiceId
    resident: tuple[str, ...]
    """Where, as node:device or node:first-last; also while it is on its way there."""
    busy: int
    """Calls under way."""
    queued: int


class FunctionsStatus(Struct, frozen=True, kw_only=True):
    registered: int
    workers: int
    """Warm, busy ones included."""
    ceiling: int
    busy: int
    queued: int
    cold_starts: int
    hedges: int


class ApiStatus(Struct, frozen=True, kw_only=True):
    api: Resource
    in_flight: int
    queued: int
    window_used: int
    """Requests that count in the window now."""
    limit: int | None
    window_s: float
    shut_s: float
    """Seconds until the next call is let through; 0 while all is well."""


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """What an orchestrator does at one moment."""

    policy: str
    queued: int
    running: int
    trajectories: int
    abandoned: int = 0
    """Trajectories that were closed because their owners stopped sending heartbeats."""
    ended: int
    uptime_s: float
    is_draining: bool
    nodes: tuple[NodeStatus, ...]
    waiting: tuple[WaitingStatus, ...] = ()
    """Actions that have waited longest."""
    services: tuple[ServiceStatus, ...] = ()
    restores: int = 0
    """How often a service was loaded onto devices, since the start."""
    functions: FunctionsStatus | None = None
    apis: tuple[ApiStatus, ...] = ()
    pools: tuple[PoolStatus, ...] = ()
    """How much of everything is in use."""
    jobs: tuple[JobStatus, ...] = ()
    """Those with most to do first."""
    longest: tuple[RunningStatus, ...] = ()
    """Actions that have held their leases longest."""
    warnings: tuple[str, ...] = ()
    """What an operator should look after, each with what to do."""


class Refused(Exception):
    """The request was not accepted; the message says what to do."""


class Overloaded(Refused):
    """Too many actions wait already."""


class Stalled(Refused):
    """The body of the request stopped arriving."""


class Draining(Refused):
    """The orchestrator shuts down; it accepts no new work."""


class Broken(Refused):
    """The orchestrator cannot write its journal, so it accepts nothing."""


class Unreachable(InfraFailed):
    """The orchestrator did not answer; it may or may not have received the request."""


encode = msgspec.msgpack.Encoder().encode
decode_submission = msgspec.msgpack.Decoder(Submission).decode
decode_opening = msgspec.msgpack.Decoder(Opening).decode
decode_deployed = msgspec.msgpack.Decoder(DeployedService).decode
decode_result = msgspec.msgpack.Decoder(ActionResult).decode


def without_output(body: bytes) -> bytes:
    """An encoded `ActionResult` whose command says how much of its output was dropped."""
    result = decode_result(body)
    command = result.command
    if command is None or not (command.stdout or command.stderr):
        return body
    dropped = command.truncated_bytes + len(command.stdout) + len(command.stderr)
    short = structs.replace(command, stdout=b"", stderr=b"", truncated_bytes=dropped)
    return encode(structs.replace(result, command=short))


def encoded(given: Submission | Opening | DeployedService) -> bytes:
    """What a caller gave, as the journal keeps it. Raises `BadInput` if that cannot be."""
    try:
        return encode(given)
    except (UnicodeEncodeError, OverflowError) as error:
        fix = "give text of Unicode and numbers of 64 bits"
        raise BadInput("request", f"it cannot be written down: {error}", fix) from None
