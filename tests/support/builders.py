"""Builders of actions and clusters, and readers of decisions, for every test of the core."""

from collections.abc import Iterable

from artangram.core.ids import ActionId, JobId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Action, ActionRecord
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, GpuSpec, PoolSpec, ServiceSpec
from artangram.core.scheduling.decisions import Decision, Report, Resize, Start, Stop, WakeAt
from artangram.core.scheduling.lease import Allocation, Lease
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.core.scheduling.policies.base import Form, Ticket
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler
from artangram.core.scheduling.speedup import Speedup

CPU = Resource("cpu")


def an_action(
    name: str,
    needs: Needs | dict[str, object] | int = 1,
    *,
    elastic: str | None = None,
    speedup: object = None,
    service: str | None = None,
    job: str = "default",
    trajectory: str | None = None,
    kind: str = "test",
    **fields: object,
) -> Action:
    """An action that needs one core, or `needs` cores, or what `needs` says."""
    if isinstance(needs, int):
        needs = {"cpu": needs}
    if not isinstance(needs, Needs):
        needs = parse_needs(needs, elastic=elastic, speedup=speedup, service=service)
    return Action(
        id=ActionId(name),
        kind=kind,
        needs=needs,
        job=JobId(job),
        trajectory=None if trajectory is None else TrajectoryId(trajectory),
        **fields,
    )


def an_elastic(name: str, least: int = 1, most: int = 8, **fields: object) -> Action:
    """An action that runs on `least` to `most` cores, twice as fast on twice as many."""
    fields = {"speedup": {"power": 1.0}, "work_s": 10.0} | fields
    needs = {"cpu": {"min": least, "max": most}}
    return an_action(name, needs, elastic="cpu", **fields)


def a_cpu(nodes: int = 1, cores: int = 8, memory_mb: int = 1000, **fields: object) -> CpuSpec:
    return CpuSpec(nodes=nodes, cores=cores, memory_mb=memory_mb, **fields)


def a_gpu(nodes: int = 1, devices: int = 4, memory_mb: int = 1000, **fields: object) -> GpuSpec:
    return GpuSpec(nodes=nodes, devices=devices, memory_mb=memory_mb, **fields)


def a_cluster(
    *,
    services: dict[str, ServiceSpec] | None = None,
    shares: dict[str, float] | None = None,
    **pools: PoolSpec,
) -> ClusterSpec:
    """A cluster of these pools; of one node with eight cores when none is named."""
    return ClusterSpec(
        pools={Resource(name): spec for name, spec in (pools or {"cpu": a_cpu()}).items()},
        services={ServiceId(name): spec for name, spec in (services or {}).items()},
        shares={JobId(name): share for name, share in (shares or {}).items()},
    )


def a_scheduler(policy_name: str = "elastic", **pools: PoolSpec) -> Scheduler:
    return Scheduler(a_cluster(**pools), policy(policy_name))


def a_waiting_ticket(
    seq: int,
    amounts: tuple[int, ...] = (1,),
    *,
    work_s: float = 1.0,
    curve: Speedup | None = None,
    job: str = "default",
    now: float = 0.0,
) -> Ticket:
    """A ticket as a lane sees it; elastic when it has a curve."""
    needs = Needs(amounts=((CPU, amounts),), elastic=None if curve is None else CPU, speedup=curve)
    form = Form(resource=CPU, amounts=amounts, is_elastic=curve is not None)
    ticket = Ticket(an_action(f"a{seq}", needs, job=job), form, seq=seq, now=now)
    ticket.work_s, ticket.curve = work_s, curve
    return ticket


def leases(decisions: Iterable[Decision]) -> list[Lease]:
    return [d.lease for d in decisions if isinstance(d, Start)]


def started(decisions: Iterable[Decision]) -> list[str]:
    return [str(lease.action_id) for lease in leases(decisions)]


def allocation(decisions: Iterable[Decision], index: int = 0) -> Allocation:
    """What the only action that started got first."""
    (lease,) = leases(decisions)
    return lease.allocations[index]


def resized(decisions: Iterable[Decision]) -> dict[str, int]:
    """The new sizes of resized actions."""
    return {str(d.action_id): d.cores.units for d in decisions if isinstance(d, Resize)}


def stopped(decisions: Iterable[Decision]) -> dict[str, str]:
    return {str(d.action_id): d.reason.value for d in decisions if isinstance(d, Stop)}


def records(decisions: Iterable[Decision]) -> list[ActionRecord]:
    return [d.record for d in decisions if isinstance(d, Report)]


def reported(decisions: Iterable[Decision]) -> dict[str, str]:
    """The outcomes of the actions that ended."""
    return {str(record.action_id): record.outcome.value for record in records(decisions)}


def wakes(decisions: Iterable[Decision]) -> list[float]:
    return [d.at for d in decisions if isinstance(d, WakeAt)]
