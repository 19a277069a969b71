"""A whole orchestrator without a machine: fake sandboxes, real everything else.

On a `looptime` loop it runs on virtual time; nothing here needs root, processes or files.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.managers.agent import NodeAgent
from artangram.managers.calls import Carrier
from artangram.managers.cpu import CpuManager
from artangram.managers.local import LocalAgent
from artangram.observe.journal import Journal, Past
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.client import Client
from artangram.orchestrator.driver import WallClock
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.orchestrator import Bounds, Orchestrator
from artangram.orchestrator.recovery import Setup
from artangram.orchestrator.replacing import NewAgent
from artangram.sandbox.fake import FakeProvider, Program

NODE = NodeId("cpu-0")


def a_setup(*, cores: int = 2, memory_mb: int = 4096, policy: str = "elastic") -> Setup:
    """One small node."""
    spec = CpuSpec(nodes=1, cores=cores, memory_mb=memory_mb)
    return Setup(cluster=ClusterSpec(pools={Resource("cpu"): spec}), policy=policy)


class FakeCluster(Client):
    """A cluster over fake sandboxes, with access to its orchestrator."""

    def __init__(
        self, orchestrator: Orchestrator, provider: FakeProvider, journal: Journal
    ) -> None:
        super().__init__(Embedded(orchestrator))
        self.orchestrator = orchestrator
        self.provider = provider
        self.journal = journal


@asynccontextmanager
async def fake_cluster(
    setup: Setup | None = None,
    *,
    programs: Mapping[str, Program] | None = None,
    journal: Journal | None = None,
    past: Past | None = None,
    bounds: Bounds | None = None,
    agent: NodeAgent | None = None,
    carriers: Mapping[type, Carrier] | None = None,
    new_agent: NewAgent | None = None,
) -> AsyncIterator[FakeCluster]:
    """A cluster that ends with the block. A given `agent` or `journal` outlives it."""
    provider = FakeProvider(programs=programs)
    clock = WallClock(not_before=0.0 if past is None else past.last_at)
    async with AsyncExitStack() as stack:
        if agent is None:
            agent = LocalAgent(NODE, provider, now=clock.now)
            stack.push_async_callback(agent.aclose)
        journal = journal or MemoryJournal(keeps_entries=True)
        orchestrator = Orchestrator(
            setup or a_setup(),
            manager=CpuManager({NODE: agent}),
            journal=journal,
            clock=clock,
            past=past,
            bounds=bounds,
            carriers=carriers,
            new_agent=new_agent,
        )
        stack.push_async_callback(orchestrator.aclose)
        await orchestrator.begin()
        yield FakeCluster(orchestrator, provider, journal)
