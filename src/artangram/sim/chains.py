"""Trajectories that think once and then call services on devices, as the bounds see them.

- In a step of one job, all ACTs of such a trajectory add up to its end less the end of its thought,
  which no schedule moves. So the loop is open after all, with chains of actions instead of actions.
- An action of a chain may not start before the one ahead of it ended. That rule gets a price, too,
  the same for all: the actions fall apart, and each counts an equal part of the end of its chain.
- Devices come in aligned blocks. A block of one size is a part of the pool with its own price: wide
  work does not fit the small ones.

`docs/lower-bound.md` has the argument. Restores are left out, which only makes the problem easier.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import ClusterSpec, GpuSpec
from artangram.core.scheduling.pools.buddy import Buddy
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.observe.trace import TraceAction, TraceSource
from artangram.sim.moldable import Floats, Moldable, moldable

MOST_ACTIONS = 10_000
"""Of a trace: a search takes seconds for each thousand."""

Chain = tuple[float, list[list[tuple[int, float]]]]
"""When its first action arrives, and for each action its degrees with the seconds on each."""

Seconds = Callable[[TraceAction, Resource, int], float]
"""How long an action runs on a number of devices of a pool."""


class ChainStep(NamedTuple):
    """The chains of one step, as two relaxations see them."""

    unchained: Moldable
    """Their actions on their own."""
    whole: Moldable
    """Each chain as one piece that wastes nothing."""


def chain_steps(
    trace: TraceSource, cluster: ClusterSpec, seconds: Seconds
) -> list[ChainStep] | None:
    """The steps of `trace`; `None` if it is not made of chains on devices, or too long."""
    chains = _Chains(cluster, seconds)
    for trajectory in trace.trajectories:
        actions = [action for turn in trajectory.turns for action in turn.actions]
        arrive_s = trajectory.arrive_s + sum(turn.think_s for turn in trajectory.turns)
        is_chain = len(trajectory.turns) == 1 and chains.add(
            trajectory.job, trajectory.step, arrive_s, actions
        )
        if not is_chain:
            return None
    return chains.steps()


class _Chains:
    """The chains of a trace, by step."""

    def __init__(self, cluster: ClusterSpec, seconds: Seconds) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._pools: dict[Resource, GpuPool] = {}
        self._jobs: set[JobId] = set()
        self._steps: dict[int, list[Chain]] = defaultdict(list)
        self._count = 0

    def add(self, job: JobId, step: int, arrive_s: float, actions: list[TraceAction]) -> bool:
        """Is this a chain like those before, and are they few enough?"""
        self._jobs.add(job)
        self._count += len(actions)
        options = [self._options(action) for action in actions]
        self._steps[step].append((arrive_s, options))
        return (
            all(options)
            and bool(actions)
            and self._count <= MOST_ACTIONS
            and len(self._jobs) == len(self._pools) == 1
        )

    def steps(self) -> list[ChainStep] | None:
        if not self._pools:
            return None
        (pool,) = self._pools.values()
        blocks = _blocks(pool.spec)
        return [
            ChainStep(_unchained(chains, blocks), _whole(chains, sum(blocks.values())))
            for chains in self._steps.values()
        ]

    def _options(self, action: TraceAction) -> list[tuple[int, float]]:
        """Degrees and seconds, none if the action competes for more than devices of one service."""
        needs = action.needs
        (resource, amounts), *more = needs.amounts
        spec = self._cluster.pools.get(resource)
        service = self._cluster.services.get(needs.service) if needs.service else None
        if more or not isinstance(spec, GpuSpec) or service is None or service.batch > 1:
            return []
        if resource not in self._pools:
            self._pools[resource] = GpuPool(resource, spec, self._cluster.services)
        assert needs.service is not None
        possible = self._pools[resource].degrees(needs.service)
        if not set(possible) & set(amounts):
            return []
        # Of any degree, asked for or not: a deployment serves every call at its own.
        return [
            (degree, spec.overhead_s + self._seconds(action, resource, degree))
            for degree in possible
        ]


def _blocks(spec: GpuSpec) -> dict[int, int]:
    """Devices by the size of the aligned block they are in, largest first."""
    devices: dict[int, int] = {}
    for _, size in Buddy(spec.devices).blocks():
        devices[size] = devices.get(size, 0) + size * spec.nodes
    return devices


def _unchained(chains: list[Chain], blocks: dict[int, int]) -> Moldable:
    """The actions of chains as actions of their own: docs/lower-bound.md, "chains"."""
    arrivals: list[tuple[float, float]] = []
    rows: list[tuple[int, int, int, float, float]] = []
    for began_s, chain in chains:
        weight, arrive_s = 1 / len(chain), began_s
        for nth, options in enumerate(chain):
            for degree, time_s in options:
                # What it waited for already counts, and each second it runs delays those behind.
                fee = weight * (arrive_s - began_s + nth * time_s)
                rows += [
                    (len(arrivals), part, degree, time_s, fee)
                    for part, size in enumerate(blocks)
                    if degree <= size
                ]
            arrivals.append((arrive_s, weight))
            arrive_s += min(time_s for _, time_s in options)
    return _in_order(np.array(arrivals), np.array(rows), np.array(list(blocks.values()), float))


def _whole(chains: list[Chain], units: int) -> Moldable:
    areas = [
        sum(min(degree * time_s for degree, time_s in options) for options in chain)
        for _, chain in chains
    ]
    return moldable([began_s for began_s, _ in chains], [[(a, 1.0)] for a in areas], units=units)


def _in_order(arrivals: Floats, rows: Floats, parts: Floats) -> Moldable:
    order = np.argsort(arrivals[:, 0], kind="stable")
    place = np.argsort(order)
    rows = rows[np.argsort(place[rows[:, 0].astype(np.int64)], kind="stable")]
    return Moldable(
        parts=parts,
        arrive_s=arrivals[order, 0],
        weight=arrivals[order, 1],
        action=place[rows[:, 0].astype(np.int64)],
        part=rows[:, 1].astype(np.int64),
        size=rows[:, 2],
        time_s=rows[:, 3],
        fee=rows[:, 4],
    )
