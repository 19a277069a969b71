"""What every job has used: cores, memory, devices, slots, calls and tokens over time.

- The ledger tells what begins and ends; nothing here decides. A replayed journal leads to the same
  accounts, except for tokens, which only answers tell: those since the last snapshot are lost with
  a killed process.
- Actions that share a copy of a service at the same time share its device-seconds.
- Memory counts from the start of a trajectory's first action on cores until its sandbox is gone.
- Callers make names up, so `MOST_ACCOUNTS` pairs of job and task have an account of their own; all
  others share the one named `OTHER`.
"""

from collections.abc import Iterable

from msgspec import Struct, field, structs

from artangram.apis.usage import tokens_in
from artangram.core.ids import ActionId, JobId, NodeId, ServiceId, TrajectoryId
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.core.scheduling.events import NodeLost, TrajectoryOpened
from artangram.core.scheduling.lease import Allocation, Calls, Devices, FunctionSlots
from artangram.orchestrator.live import LiveAction
from artangram.orchestrator.use import JobUse, UseReport

MOST_ACCOUNTS = 1000
MOST_NAME_CHARACTERS = 100
OTHER = "other"
_CPU = "cpu"


class _Stay(Struct, kw_only=True):
    """A trajectory between its opening and the end of its sandbox."""

    account: JobUse
    memory_mb: int
    opened_at: float
    node: NodeId | None = None
    since: float = 0.0
    """When its memory was counted last."""
    peak: int = 0
    """The most cores that one of its actions held."""


class _Copy(Struct, kw_only=True):
    """A service on some devices while calls use it."""

    degree: int
    since: float
    users: dict[ActionId, JobUse] = field(default_factory=dict)

    def settle(self, at: float) -> None:
        """Charge its users for the time until `at`, each the same part."""
        part = self.degree * (at - self.since) / max(1, len(self.users))
        for account in self.users.values():
            account.device_s += part
        self.since = at


class _Deployment(Struct, kw_only=True):
    """A service as it would have been deployed for good."""

    degree: int
    since: float


class Accounts:
    """See the module. The ledger calls all but `report`."""

    def __init__(self) -> None:
        self.began_at: float | None = None
        self.peak_cores = 0
        #: Cores that running actions hold, and that waiting ones need at least.
        self.held = 0
        self.wanted = 0
        self._accounts: dict[tuple[str, str], JobUse] = {}
        self._stays: dict[TrajectoryId, _Stay] = {}
        self._copies: dict[tuple[NodeId, int, ServiceId], _Copy] = {}
        self._deployments: dict[ServiceId, _Deployment] = {}

    def __repr__(self) -> str:
        return f"<Accounts: {len(self._accounts)} tasks of jobs>"

    def opened(self, event: TrajectoryOpened, task: str, at: float) -> None:
        if self.began_at is None:
            self.began_at = at
        account = self._of(event.job, task)
        account.trajectories += 1
        memory_mb = event.memory_mb
        self._stays[event.trajectory] = _Stay(account=account, memory_mb=memory_mb, opened_at=at)

    def gone(self, trajectory: TrajectoryId, at: float) -> None:
        """Its sandbox is gone, or it never had one."""
        stay = self._stays.pop(trajectory, None)
        if stay is not None:
            self._leave(stay, at)
            _reserve(stay.account, stay, at)

    def submitted(self, live: LiveAction, at: float) -> None:
        if self.began_at is None:
            self.began_at = at
        self.wanted += least_cores(live)

    def began(self, live: LiveAction, at: float) -> None:
        """It has a lease, which the record holds."""
        assert live.lease is not None
        self.wanted -= least_cores(live)
        account = self._of(live.action.job, live.action.task)
        if live.cores is not None and live.trajectory is not None:
            self._arrive(live.trajectory.id, live.cores.node, at)
        for one in live.lease.allocations:
            if isinstance(one, Calls):
                account.calls += one.units
            elif isinstance(one, Devices):
                self._join(live.action.id, one, account, at)

    def holds(self, live: LiveAction, units: int) -> None:
        """It is about to hold this many cores; the record has what it held so far."""
        self.held += units - live.units
        stay = None if live.trajectory is None else self._stays.get(live.trajectory.id)
        if stay is not None and units > stay.peak:
            stay.peak = units

    def ended(self, live: LiveAction, allocations: Iterable[Allocation], at: float) -> None:
        """Its lease is over; it waits again until it is reported."""
        self.wanted += least_cores(live)
        for one in allocations:
            if isinstance(one, FunctionSlots):
                account = self._of(live.action.job, live.action.task)
                account.slot_s += one.units * (at - live.started_at)
            elif isinstance(one, Devices):
                self._part(live.action.id, one, at)

    def reported(self, live: LiveAction, record: ActionRecord) -> None:
        self.wanted -= least_cores(live)
        account = self._of(live.action.job, live.action.task)
        account.actions += 1
        account.failed += record.outcome is not Outcome.SUCCEEDED
        account.wait_s += record.wait_s
        account.core_s += live.core_s
        if live.end is not None and live.end.answer is not None:
            account.tokens += tokens_in(live.end.answer.body) or 0

    def lost(self, event: NodeLost, at: float) -> None:
        """A node and the memory of its trajectories are gone."""
        for stay in self._stays.values():
            if stay.node == event.node:
                self._leave(stay, at)
        for place in [place for place in self._copies if place[0] == event.node]:
            self._copies.pop(place).settle(at)

    def decided(self) -> None:
        """All of one instant was told."""
        wanted = self.held + self.wanted
        if wanted > self.peak_cores:
            self.peak_cores = wanted

    def pod_cores(self) -> int:
        """Cores that a pod per open trajectory would hold now."""
        return sum(stay.peak for stay in self._stays.values())

    def report(self, alive: Iterable[LiveAction], *, cores: int, now: float) -> UseReport:
        """The accounts with what is under way counted until `now`."""
        rows = {id(one): structs.replace(one) for one in self._accounts.values()}
        for copy in self._copies.values():
            part = copy.degree * (now - copy.since) / max(1, len(copy.users))
            for user in copy.users.values():
                rows[id(user)].device_s += part
        for stay in self._stays.values():
            row = rows[id(stay.account)]
            _reserve(row, stay, now)
            if stay.node is not None:
                row.memory_mb_s += stay.memory_mb * (now - stay.since)
        for live in alive:
            account = self._accounts.get(self._key(live.action.job, live.action.task))
            if account is not None:
                row = rows[id(account)]
                row.core_s += live.core_s + live.units * (now - live.units_since)
                row.slot_s += _slots(live) * (now - live.started_at)
        deployed = sum(one.degree * (now - one.since) for one in self._deployments.values())
        return UseReport(
            began_at=now if self.began_at is None else self.began_at,
            at=now,
            cores=cores,
            peak_cores=self.peak_cores,
            deployed_device_s=deployed,
            rows=tuple(rows.values()),
        )

    def _key(self, job: str, task: str) -> tuple[str, str]:
        key = (job, task)
        if key in self._accounts:
            return key
        is_short = len(job) <= MOST_NAME_CHARACTERS and len(task) <= MOST_NAME_CHARACTERS
        return key if is_short and len(self._accounts) < MOST_ACCOUNTS else (OTHER, "")

    def _of(self, job: JobId, task: str) -> JobUse:
        key = self._key(job, task)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = JobUse(job=key[0], task=key[1])
        return account

    def _arrive(self, trajectory: TrajectoryId, node: NodeId, at: float) -> None:
        stay = self._stays.get(trajectory)
        if stay is not None and stay.node is None:
            stay.node, stay.since = node, at

    def _leave(self, stay: _Stay, at: float) -> None:
        if stay.node is not None:
            stay.account.memory_mb_s += stay.memory_mb * (at - stay.since)
            stay.node = None

    def _join(self, action_id: ActionId, devices: Devices, account: JobUse, at: float) -> None:
        known = self._deployments.setdefault(
            devices.service, _Deployment(degree=devices.degree, since=at)
        )
        known.degree = max(known.degree, devices.degree)
        place = (devices.node, devices.first, devices.service)
        copy = self._copies.setdefault(place, _Copy(degree=devices.degree, since=at))
        copy.settle(at)
        copy.users[action_id] = account

    def _part(self, action_id: ActionId, devices: Devices, at: float) -> None:
        place = (devices.node, devices.first, devices.service)
        copy = self._copies.get(place)
        if copy is None or action_id not in copy.users:
            return  # It was lost with its node.
        copy.settle(at)
        del copy.users[action_id]
        if not copy.users:
            del self._copies[place]


def _reserve(account: JobUse, stay: _Stay, at: float) -> None:
    """What a pod would have held until `at`."""
    account.pod_core_s += stay.peak * (at - stay.opened_at)
    if stay.peak:
        account.pod_memory_mb_s += stay.memory_mb * (at - stay.opened_at)


def least_cores(live: LiveAction) -> int:
    """The fewest cores on which it can run; 0 if it needs none."""
    for resource, amounts in live.action.needs.amounts:
        if resource == _CPU:
            return amounts[0]
    return 0


def _slots(live: LiveAction) -> int:
    lease = live.lease
    if lease is None:
        return 0
    return sum(one.units for one in lease.allocations if isinstance(one, FunctionSlots))
