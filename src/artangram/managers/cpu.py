"""Makes leases of cores real: which node, which of its cores, and what the command is told.

- `core/pools` knows the cores of a node as 0 to n - 1; here they become the machine's own numbers.
- An elastic command learns its degree from `{units}` in its argv and from `ARTANGRAM_UNITS`. The
  degree stays as the action runs; the cores below it change.
- A time limit passes at the pace of the lease, and its agent counts it.
- A lease that shares a node's cores (`CoreShare`) may use all of them: the kernel shares, by the
  lease's weight and up to its limit. There a time limit passes with the clock.
- A node whose agent is gone is told nothing: what it was to do ends with the node.
"""

from collections.abc import Mapping

from msgspec import structs

from artangram.core.ids import ActionId, NodeId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.lease import Cores, CoreShare, Lease
from artangram.managers.agent import NodeAgent, Run, SandboxSpec
from artangram.sandbox.cpushare import CpuShare
from artangram.sandbox.protocol import Command

LONGEST_RUN_S = 86_400.0
"""The limit of an action without one: a sandbox needs a limit, and no action should take a day."""

UNITS = "ARTANGRAM_UNITS"


class CpuManager:
    """Tells node agents what the scheduler decided about cores."""

    def __init__(
        self,
        agents: Mapping[NodeId, NodeAgent],
        *,
        cores: Mapping[NodeId, tuple[int, ...]] | None = None,
    ) -> None:
        self.agents = dict(agents)
        self._cores = dict(cores or {})

    def add(self, agent: NodeAgent, cores: tuple[int, ...]) -> None:
        """A node has joined; these are the numbers of its cores."""
        self.agents[agent.node] = agent
        self._cores[agent.node] = cores

    def __repr__(self) -> str:
        return f"<CpuManager: {len(self.agents)} nodes>"

    def start(
        self,
        lease: Lease,
        action: Action,
        *,
        place: SandboxSpec,
        command: Command | None,
        expects_files: bool,
        streams: bool = False,
    ) -> None:
        """Make `lease` real: run `command` on it, or only make the sandbox."""
        allocation = cores_of(lease)
        assert allocation is not None, f"{lease} has no cores"
        assert action.trajectory is not None, f"{action.id} has no trajectory to run in"
        agent = self.agents.get(allocation.node)
        if agent is None:
            return
        # On cores of its own the agent counts its time limit, which passes at a pace.
        is_counted = command is not None and isinstance(allocation, Cores)
        if command is not None:
            limit_s = None if is_counted else action.timeout_s
            command = self._told(command, allocation, workers=lease.workers, limit_s=limit_s)
        run = Run(
            lease=lease,
            trajectory=action.trajectory,
            place=place,
            command=command,
            expects_files=expects_files,
            streams=streams,
            limit_s=action.timeout_s if is_counted else None,
        )
        agent.start(run)

    def resize(self, action_id: ActionId, cores: Cores, *, pace: float = 1.0) -> None:
        """A running action has these cores now, and its time limit passes at `pace`."""
        agent = self.agents.get(cores.node)
        if agent is not None:
            agent.resize(action_id, self._mapped(cores), pace=pace)

    def stop(self, action_id: ActionId, node: NodeId) -> None:
        """End what an action runs on `node`, if it still runs."""
        agent = self.agents.get(node)
        if agent is not None:
            agent.stop(action_id)

    def _told(
        self,
        command: Command,
        allocation: Cores | CoreShare,
        *,
        workers: int,
        limit_s: float | None,
    ) -> Command:
        """`command` with its degree, its cores and its time limit filled in."""
        units = str(workers)
        return structs.replace(
            command,
            argv=tuple([word.replace("{units}", units) for word in command.argv]),
            environ=command.environ | {UNITS: units},
            timeout_s=LONGEST_RUN_S if limit_s is None else limit_s,
            cores=self._mapped(allocation),
            share=share_of(allocation) if isinstance(allocation, CoreShare) else None,
        )

    def _mapped(self, allocation: Cores | CoreShare) -> tuple[int, ...]:
        if isinstance(allocation, CoreShare):
            return ()
        names = self._cores.get(allocation.node)
        if names is None:
            return allocation.cores
        return tuple([names[core] for core in allocation.cores])


def share_of(allocation: CoreShare) -> CpuShare:
    """What the kernel enforces for a lease that shares its node's cores."""
    return CpuShare(
        weight_milli=max(1, allocation.weight_milli), limit_milli=max(1, allocation.limit_milli)
    )


def cores_of(lease: Lease) -> Cores | CoreShare | None:
    """The part of `lease` that a CPU node gives."""
    for allocation in lease.allocations:
        if isinstance(allocation, (Cores, CoreShare)):
            return allocation
    return None
