"""From a journal back to the state that wrote it.

A snapshot is a pickle of scheduler and ledger, without the policy's functions: those are named in
the journal and made anew. It is read only from the orchestrator's own state directory; readers of
foreign journals look at entries alone.
"""

import io
import pickle
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.action import Action
from artangram.core.cluster import ClusterSpec
from artangram.core.events import Submitted, TrajectoryOpened
from artangram.core.ids import TrajectoryId
from artangram.core.policies.catalog import policy
from artangram.core.scheduler import Scheduler
from artangram.observe.journal import JournalError, Kept, Past, replay
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.records import (
    Deployed,
    Opening,
    Submission,
    decode_deployed,
    decode_opening,
    decode_submission,
)

_POLICY = "policy"


class Setup(Struct, frozen=True, kw_only=True):
    """What a scheduler is made of; a journal belongs to one."""

    cluster: ClusterSpec
    policy: str = "elastic"

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)

    def scheduler(self) -> Scheduler:
        return Scheduler(self.cluster, policy(self.policy))


def restored(past: Past, setup: Setup) -> tuple[Scheduler, Ledger]:
    """The state after the last entry."""
    if past.owner != setup.encoded() and not past.is_empty:
        raise JournalError(
            "it belongs to another cluster or policy; start with those it was made with, "
            "or with a new state directory"
        )
    if past.snapshot is not None:
        scheduler, ledger = thawed(past.snapshot.body, setup)
    else:
        scheduler, ledger = setup.scheduler(), Ledger()
    for entry in replay(past.entries, scheduler):
        for event in entry.events:
            match event:
                case Submitted(action):
                    ledger.expect(_submission(action, past.kept))
                case TrajectoryOpened(trajectory):
                    ledger.expect(_opening(trajectory, past.kept))
        ledger.apply(entry.events, entry.decisions, at=entry.at)
    for action_id in ledger.actions:
        if past.snapshot is None and f"action:{action_id}" not in past.kept:
            raise JournalError(f"it does not say what {action_id} is to do")
    return scheduler, ledger


def deployed_in(past: Past | None) -> list[Deployed]:
    """The services that were deployed in earlier lives."""
    kept = {} if past is None else past.kept
    return [decode_deployed(kept[name].body) for name in kept if name.startswith("service:")]


def _submission(action: Action, kept: dict[str, Kept]) -> Submission:
    known = kept.get(f"action:{action.id}")
    if known is None:  # It has ended since: nobody will run it again.
        return Submission(action=action, command=None)
    return decode_submission(known.body)


def _opening(trajectory: TrajectoryId, kept: dict[str, Kept]) -> Opening:
    known = kept.get(f"trajectory:{trajectory}")
    return Opening(trajectory=trajectory) if known is None else decode_opening(known.body)


def frozen(scheduler: Scheduler, ledger: Ledger) -> bytes:
    """Scheduler and ledger as bytes."""
    buffer = io.BytesIO()
    _Freezer(buffer, scheduler).dump((scheduler, ledger))
    return buffer.getvalue()


def thawed(body: bytes, setup: Setup) -> tuple[Scheduler, Ledger]:
    """What `frozen` took."""
    try:
        scheduler, ledger = _Thawer(io.BytesIO(body), setup).load()
    except (AttributeError, ImportError, pickle.UnpicklingError, TypeError) as error:
        raise JournalError(f"its snapshot is of another version: {error}") from error
    assert isinstance(scheduler, Scheduler)
    assert isinstance(ledger, Ledger)
    ledger.forget_expected()
    return scheduler, ledger


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
