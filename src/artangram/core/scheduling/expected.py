"""How long a job would wait for memory and cores now, so that it can open fewer trajectories.

A guess by what stands in line and how fast the line moves. Nothing is decided by it.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.placement import Placement
from artangram.core.scheduling.policies.base import Ticket


class ExpectedWait(Struct, frozen=True, kw_only=True):
    """Of a trajectory and an action that a job would open and submit now."""

    memory_s: float = 0.0
    """Until the trajectory has a node."""
    cores_s: float = 0.0
    """Until the action has cores, once its trajectory has a node."""
    num_trajectories: int = 0
    """Of the job, that wait for a node."""
    num_actions: int = 0
    """Of the job, that wait for cores on a node."""


def expected_wait(
    pools: Mapping[Resource, Placement], job: JobId, waiting: Iterable[Ticket], now: float
) -> ExpectedWait:
    """What `job`, whose tickets `waiting` are, would wait for in the fullest pool."""
    work_s: dict[Resource, float] = {}
    num_actions = 0
    for ticket in waiting:
        resource = ticket.form.resource
        if ticket.lane is not None and resource in pools:
            num_actions += 1
            work_s[resource] = work_s.get(resource, 0.0) + ticket.area * ticket.belief.mean_s
    lines = [pool.lines[job] for pool in pools.values() if job in pool.lines]
    cores_s = (core_s / pools[name].use.part_of(job) for name, core_s in work_s.items())
    return ExpectedWait(
        memory_s=max((line.wait_s(now) for line in lines), default=0.0),
        cores_s=max(cores_s, default=0.0),
        num_trajectories=sum(line.num for line in lines),
        num_actions=num_actions,
    )
