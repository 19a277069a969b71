"""From a journal back to the state that wrote it.

A snapshot is a pickle of scheduler and ledger without the policy's functions: the journal names the
policy, which is made anew. A snapshot is read only from the orchestrator's own state directory and
only if its digest is right; readers of other journals look at entries alone.
"""

import io
import pickle
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, structs

from artangram.core.ids import NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, GpuSpec, node_ids
from artangram.core.scheduling.estimates import Estimates
from artangram.core.scheduling.events import (
    Event,
    NodeJoined,
    NodeLost,
    ServiceDeployed,
    Submitted,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.reconfigure import difference, fixed
from artangram.core.scheduling.scheduler import Scheduler
from artangram.observe.journal import VERSION, JournalError, KeptRecord, Past, replay
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.records import (
    DeployedService,
    Opening,
    Submission,
    decode_deployed,
    decode_opening,
    decode_submission,
)

_POLICY = "policy"
_DIGEST_BYTES = sha256().digest_size


class Setup(Struct, frozen=True, kw_only=True):
    """What a scheduler is made of. A journal belongs to its fixed part."""

    cluster: ClusterSpec
    policy: str = "elastic"

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)

    def fixed_part(self) -> "Setup":
        """What has to be the same to go on with what is alive: the rest changes by events."""
        cluster = fixed(self.cluster)
        pools = {
            name: structs.replace(spec, nodes=0) if isinstance(spec, CpuSpec) else spec
            for name, spec in cluster.pools.items()
        }
        return structs.replace(self, cluster=structs.replace(cluster, pools=pools))

    def scheduler(self) -> Scheduler:
        return Scheduler(self.cluster, policy(self.policy))

    def nodes(self) -> dict[NodeId, Resource]:
        """The nodes that run commands, with their pools."""
        return {
            node: resource
            for resource, spec in self.cluster.pools.items()
            if isinstance(spec, CpuSpec)
            for node in node_ids(resource, spec.nodes)
        }


class Restored(Struct, frozen=True, kw_only=True):
    """The state that an orchestrator goes on from."""

    scheduler: Scheduler
    ledger: Ledger
    last_at: float = 0.0
    """The time of the last entry."""
    is_anew: bool = False
    """It differs from what the entries lead to, so the journal has to be told."""


def restored(past: Past | None, setup: Setup) -> Restored:
    """What a journal leads to. If nothing is alive in it, it takes another setup."""
    if past is None or past.is_empty:
        is_anew = past is not None
        return Restored(scheduler=setup.scheduler(), ledger=Ledger(), is_anew=is_anew)
    try:
        before = msgspec.json.decode(past.owner, type=Setup)
        scheduler, ledger = replayed(past, before)
    except (msgspec.MsgspecError, JournalError) as error:
        if _is_idle(past):  # Nothing of it is needed to go on, whichever version wrote it.
            return _anew(past, setup, Estimates(), Ledger())
        raise JournalError(str(error)) from error
    if before.fixed_part() == setup.fixed_part():
        return Restored(scheduler=scheduler, ledger=ledger, last_at=past.last_at)
    if ledger.actions or ledger.trajectories:
        alive = f"{len(ledger.actions)} actions and {len(ledger.trajectories)} trajectories"
        raise JournalError(
            f"it belongs to another cluster or policy, and {alive} are alive in it; start it with "
            "the cluster and policy it had, and close them"
        )
    return _anew(past, setup, scheduler.estimates, ledger)


def _is_idle(past: Past) -> bool:
    """Was it drained: nothing alive, and a snapshot of that?"""
    alive = any(id.startswith(("action:", "trajectory:")) for id in past.kept)
    return not past.entries and not alive


def _anew(past: Past, setup: Setup, estimates: Estimates, ledger: Ledger) -> Restored:
    """A scheduler of `setup` that knows what was learned and deployed before."""
    scheduler = setup.scheduler()
    scheduler.estimates = estimates
    for deployed in deployed_in(past):
        event = ServiceDeployed(deployed.service.id, deployed.spec)
        scheduler.handle(event, past.last_at)
    return Restored(scheduler=scheduler, ledger=ledger, last_at=past.last_at, is_anew=True)


def replayed(past: Past, setup: Setup) -> tuple[Scheduler, Ledger]:
    """The state that the entries of a journal led to. Raises `JournalError`."""
    if past.snapshot is not None:
        scheduler, ledger = thawed(past.snapshot.body, setup)
    else:
        scheduler, ledger = setup.scheduler(), Ledger()
    for entry in replay(past.entries, scheduler):
        for event in entry.events:
            match event:
                case Submitted(action):
                    ledger.submit(_submission(action, past.kept))
                case TrajectoryOpened(trajectory):
                    ledger.open(_opening(trajectory, past.kept))
        changes = ledger.apply(entry.events, entry.decisions, at=entry.at)
        for live, _ in changes.ended:
            ledger.delivered(live)
        for left in changes.left:
            ledger.gone(left)
    for action_id in ledger.actions:
        if past.snapshot is None and f"action:{action_id}" not in past.kept:
            raise JournalError(f"it does not say what {action_id} is to do")
    return scheduler, ledger


def deployed_in(past: Past | None) -> list[DeployedService]:
    """The services that were deployed in earlier lives."""
    kept = {} if past is None else past.kept
    return [decode_deployed(kept[name].body) for name in kept if name.startswith("service:")]


def since(scheduler: Scheduler, cluster: ClusterSpec) -> Iterator[Event]:
    """What has happened with the restart. `cluster` is what it is started with.

    Services live in the orchestrator's process, so no device holds one.
    """
    changed = difference(scheduler.cluster, cluster)
    if changed is not None:
        yield changed
    for resource, spec in cluster.pools.items():
        if isinstance(spec, GpuSpec):
            for node in node_ids(resource, spec.nodes):
                yield NodeLost(resource, node, "the orchestrator was restarted")
                yield NodeJoined(resource, node)


def _submission(action: Action, kept: dict[str, KeptRecord]) -> Submission:
    known = kept.get(f"action:{action.id}")
    if known is None:  # It has ended since, and will not run again.
        return Submission(action=action, command=None)
    return decode_submission(known.body)


def _opening(trajectory: TrajectoryId, kept: dict[str, KeptRecord]) -> Opening:
    known = kept.get(f"trajectory:{trajectory}")
    return Opening(trajectory=trajectory) if known is None else decode_opening(known.body)


def frozen(scheduler: Scheduler, ledger: Ledger) -> bytes:
    """Scheduler and ledger as bytes, behind their digest."""
    buffer = io.BytesIO()
    _Freezer(buffer, scheduler).dump((scheduler, ledger))
    return _digest(buffer.getvalue()) + buffer.getvalue()


def thawed(body: bytes, setup: Setup) -> tuple[Scheduler, Ledger]:
    """What `frozen` took. A pickle with a wrong bit is often a pickle of something else."""
    digest, pickled = body[:_DIGEST_BYTES], body[_DIGEST_BYTES:]
    if _digest(pickled) != digest:
        fix = "start the release that wrote it and drain it there, or restore it from a copy"
        raise JournalError(f"its snapshot is damaged or of another version; {fix}")
    try:
        scheduler, ledger = _Thawer(io.BytesIO(pickled), setup).load()
    except (AttributeError, ImportError, pickle.UnpicklingError, TypeError) as error:
        raise JournalError(f"its snapshot is of another version: {error}") from error
    assert isinstance(scheduler, Scheduler)
    assert isinstance(ledger, Ledger)
    return scheduler, ledger


def _digest(pickled: bytes) -> bytes:
    """Of the version, too: classes of the same name may have had other fields."""
    return sha256(str(VERSION).encode() + pickled).digest()


class _Freezer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, scheduler: Scheduler) -> None:
        super().__init__(file, protocol=5)
        self._policy = scheduler.policy

    def persistent_id(self, obj: Any) -> str | None:
        return _POLICY if obj is self._policy else None


class _Thawer(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, setup: Setup) -> None:
        super().__init__(file)
        self._policy = policy(setup.policy)

    def persistent_load(self, pid: Any) -> Any:
        return self._policy
