"""What jobs used, what that costs, and what static provisioning would have cost for the same work.

Records and sums only: `accounts` counts, `artangram use` and the dashboard show.
"""

from collections.abc import Iterable, Mapping
from math import inf

from msgspec import Struct, structs

from artangram.core.errors import BadInput


class JobUse(Struct, kw_only=True):
    """What the actions of one task of one job have used, those under way included."""

    job: str
    task: str = ""
    actions: int = 0
    """Actions that have ended."""
    failed: int = 0
    """Those of them that did not succeed."""
    trajectories: int = 0
    wait_s: float = 0.0
    core_s: float = 0.0
    memory_mb_s: float = 0.0
    device_s: float = 0.0
    slot_s: float = 0.0
    """Function slots held times how long."""
    calls: int = 0
    """Requests to outside APIs."""
    tokens: int = 0
    """As the answers of APIs and services count them."""
    pod_core_s: float = 0.0
    """What pods would have reserved: as many cores as the widest action of a trajectory held, from
    its opening to its end."""
    pod_memory_mb_s: float = 0.0


class UseReport(Struct, frozen=True, kw_only=True):
    """The accounts at one moment."""

    began_at: float
    """When the first of them began, in Unix time."""
    at: float
    cores: int = 0
    """Cores of the cluster now."""
    peak_cores: int = 0
    """The most cores that were held and waited for at one moment."""
    deployed_device_s: float = 0.0
    """What deployments of their own would have held: every service the devices of its widest call,
    since that was first called."""
    rows: tuple[JobUse, ...]

    @property
    def peak_core_s(self) -> float:
        """The cores of the busiest moment, held all the time."""
        return self.peak_cores * (self.at - self.began_at)

    @property
    def total(self) -> JobUse:
        """All rows added up."""
        total = JobUse(job="all")
        for row in self.rows:
            for name in AMOUNTS:
                setattr(total, name, getattr(total, name) + getattr(row, name))
        return total


AMOUNTS = tuple(name for name in JobUse.__struct_fields__ if name not in ("job", "task"))
"""The fields of a `JobUse` that add up."""

HOUR_S = 3600.0
MB_PER_GB = 1024.0


class Prices(Struct, frozen=True, kw_only=True):
    """What units cost, in any one currency."""

    cpu: float = 0.0
    """One core for an hour."""
    memory: float = 0.0
    """1024 MB for an hour."""
    gpu: float = 0.0
    """One device for an hour."""
    slot: float = 0.0
    """One function slot for an hour."""
    call: float = 0.0
    """One request to an outside API."""
    tokens: float = 0.0
    """A million tokens."""

    def of(self, use: JobUse) -> float:
        """What a use costs, if only use is paid for."""
        return self.reserved(
            core_s=use.core_s, memory_mb_s=use.memory_mb_s, device_s=use.device_s
        ) + self._metered(use)

    def reserved(self, *, core_s: float, memory_mb_s: float, device_s: float) -> float:
        gb_s = memory_mb_s / MB_PER_GB
        return (self.cpu * core_s + self.memory * gb_s + self.gpu * device_s) / HOUR_S

    def _metered(self, use: JobUse) -> float:
        """What is paid per use under any provisioning."""
        return (
            self.slot * use.slot_s / HOUR_S + self.call * use.calls + self.tokens * use.tokens / 1e6
        )

    def of_pods(self, report: UseReport) -> float:
        total = report.total
        return self._metered(total) + self.reserved(
            core_s=total.pod_core_s,
            memory_mb_s=total.pod_memory_mb_s,
            device_s=report.deployed_device_s,
        )

    def of_sharing(self, report: UseReport) -> float:
        total = report.total
        return self._metered(total) + self.reserved(
            core_s=report.peak_core_s,
            memory_mb_s=total.memory_mb_s,
            device_s=report.deployed_device_s,
        )


class Alternative(Struct, frozen=True, kw_only=True):
    """One way to provide what jobs used."""

    name: str
    core_s: float
    device_s: float
    cost: float
    reason: str
    """Why it takes that much."""


def parse_prices(given: Iterable[str]) -> Prices:
    """Prices as `cpu=0.04`. Raises `BadInput`."""
    found: dict[str, float] = {}
    for text in given:
        name, _, amount = text.partition("=")
        known = Prices.__struct_fields__
        if name not in known:
            raise BadInput("price", f"{text!r} prices no unit", f"name one of: {', '.join(known)}")
        try:
            found[name] = float(amount)
        except ValueError:
            raise BadInput("price", f"{text!r} has no amount", "write it as cpu=0.04") from None
        if not 0 <= found[name] < inf:
            raise BadInput("price", f"{text!r} is not a price", "give 0 or more")
    return Prices(**found)


def alternatives(report: UseReport, prices: Prices) -> tuple[Alternative, ...]:
    """What was used, and what pods and kernel sharing would have held for the same work."""
    total = report.total
    lasted_h = (report.at - report.began_at) / HOUR_S
    mean_peak = total.pod_core_s / total.core_s if total.core_s else 0.0
    devices = (
        "; every service keeps the devices of its widest call" if report.deployed_device_s else ""
    )
    return (
        Alternative(
            name="by action",
            core_s=total.core_s,
            device_s=total.device_s,
            cost=prices.of(total),
            reason="cores and devices are held only while an action runs on them",
        ),
        Alternative(
            name="pods",
            core_s=total.pod_core_s,
            device_s=report.deployed_device_s,
            cost=prices.of_pods(report),
            reason="a pod holds the cores of its widest action from opening to end, also while "
            f"the model thinks: {mean_peak:.1f} core-seconds held for one used{devices}",
        ),
        Alternative(
            name="kernel sharing",
            core_s=report.peak_core_s,
            device_s=report.deployed_device_s,
            cost=prices.of_sharing(report),
            reason="machines that never slow an action have the cores of the busiest moment, "
            f"{report.peak_cores} wanted at once, for all {lasted_h:.2f} h; with fewer, "
            f"all actions slow down together{devices}",
        ),
    )


def by_job(rows: Iterable[JobUse]) -> list[JobUse]:
    """The rows of each job added up, the largest use of cores first."""
    jobs: dict[str, JobUse] = {}
    for row in rows:
        total = jobs.setdefault(row.job, JobUse(job=row.job))
        for name in AMOUNTS:
            setattr(total, name, getattr(total, name) + getattr(row, name))
    return sorted(jobs.values(), key=lambda one: (-one.core_s, one.job))


def csv_rows(report: UseReport, prices: Prices) -> Iterable[Mapping[str, object]]:
    """A row for every task of every job, with its cost."""
    for row in report.rows:
        yield {**structs.asdict(row), "cost": prices.of(row)}
