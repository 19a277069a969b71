"""What platforms ask for, by both ways to a cluster: in the process and over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, NodeId, Resource
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, QuotaSpec
from artangram.managers.local import LocalAgent
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.recovery import Setup
from artangram.orchestrator.server import serving
from artangram.sandbox.fake import FakeProvider
from artangram.testing.fakes import FakeCluster, fake_cluster

TOKEN = "a token of this test"
CPU = Resource("cpu")
NODE = CpuSpec(nodes=1, cores=2, memory_mb=4096, labels={"disk": "nvme"})
SETUP = Setup(cluster=ClusterSpec(pools={CPU: NODE}))


@asynccontextmanager
async def both(setup: Setup = SETUP) -> AsyncIterator[tuple[FakeCluster, list[Client]]]:
    """A cluster, and the two ways to it."""
    async with (
        fake_cluster(setup) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as connected,
    ):
        yield behind, [behind, connected]


async def test_a_trajectory_lives_on_a_node_with_its_labels_or_is_refused() -> None:
    async with both() as (_, clients):
        for client in clients:
            async with client.trajectory(selector={"disk": "nvme"}) as t:
                assert (await t.run(["true"])).ok
            async with client.trajectory(selector={"disk": "tape"}) as t:
                refused = await t.run(["true"])
            assert refused.outcome is Outcome.REFUSED
            assert "no node of cpu has disk=tape" in refused.reason
            assert "use labels that nodes have: disk=nvme" in refused.reason


async def test_a_client_hears_how_long_its_job_would_wait() -> None:
    large = {"job": "a/b", "memory_mb": 4096}
    async with both() as (behind, clients), behind.trajectory(**large) as holds:
        await holds.run(["true"])
        async with behind.trajectory(**large) as waits:
            asked = asyncio.create_task(waits.run(["true"]))
            await asyncio.sleep(0.05)
            for client in clients:
                found = await client.expected_wait("a/b")
                assert (found.num_trajectories, found.memory_s > 0) == (1, True)
                assert (await client.expected_wait("other")).num_trajectories == 0
            asked.cancel()


@pytest.mark.parametrize("limit", [{"idle_s": 0.1}, {"lifetime_s": 0.1}])
async def test_a_trajectory_past_its_limit_is_closed(limit: dict[str, float]) -> None:
    async with both() as (behind, clients):
        for client in clients:
            t = await client.trajectory(**limit).open()
            async with asyncio.timeout(PATIENCE_S):
                while t.id in behind.orchestrator.ledger.trajectories:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.02)
            with pytest.raises(BadInput, match="is not open"):
                await t.run(["true"])
            await t.close()


async def test_a_child_that_its_parent_would_wait_for_for_ever_is_refused() -> None:
    async with both() as (_, clients):
        for client in clients:
            async with (
                client.trajectory(memory_mb=4000) as parent,
                client.trajectory(memory_mb=4000, parent=parent.id) as child,
            ):
                assert (await parent.run(["true"])).ok
                refused = await child.run(["true"])
                assert refused.outcome is Outcome.REFUSED
                assert "every trajectory that holds memory waits" in refused.reason


async def test_a_wrong_selector_or_limit_is_refused_by_its_name() -> None:
    async with both() as (_, clients):
        for client in clients:
            with pytest.raises(BadInput, match="selector: expected a mapping, got `list`"):
                client.trajectory(selector=["disk"])  # type: ignore[arg-type]
            with pytest.raises(BadInput, match=r"selector\[\.\.\.\]: expected `str`, got `int`"):
                client.trajectory(selector={"disk": 1})  # type: ignore[dict-item]
            with pytest.raises(BadInput, match=r"idle_s: 0\.0 is not a time limit"):
                client.trajectory(idle_s=0)


async def test_labels_with_control_characters_do_not_come_over_http() -> None:
    async with both() as (_, clients):
        with pytest.raises(BadInput, match=r"selector: .* cannot be printed"):
            await clients[1].trajectory(selector={"a": "\x1b[31m"}).open()


async def test_a_higher_priority_goes_before_its_job() -> None:
    """On one core: the first one runs, the urgent one is next although it came last."""
    one_core = ClusterSpec(pools={CPU: structs.replace(NODE, cores=1)})
    async with both(Setup(cluster=one_core)) as (_, clients):
        for client in clients:
            async with (
                client.trajectory() as first,
                client.trajectory() as late,
                client.trajectory() as urgent,
            ):
                running = asyncio.create_task(first.run(["sleep", "0.3"], kind="x"))
                await asyncio.sleep(0.1)
                waiting = asyncio.create_task(late.run(["sleep", "0.1"], kind="x"))
                await asyncio.sleep(0.1)
                ran = await urgent.run(["sleep", "0.1"], kind="x", priority=1)
                assert ran.ok
                assert not waiting.done()
                await asyncio.gather(running, waiting)
                with pytest.raises(BadInput, match="priority: 11 is out of range"):
                    await urgent.run(["true"], priority=11)


SEARCH = Resource("search")
WITH_SEARCH = Setup(
    cluster=ClusterSpec(pools={CPU: NODE, SEARCH: QuotaSpec(concurrency=1)}, shares={JobId("x"): 2})
)


async def test_a_quota_that_is_raised_lets_what_waits_start() -> None:
    async with both(WITH_SEARCH) as (behind, clients):
        for more, client in enumerate(clients, 2):
            async with client.trajectory() as one, client.trajectory() as other:
                held = asyncio.create_task(one.run(["sleep", "100"], needs={"search": more - 1}))
                await asyncio.sleep(0.1)
                ran = asyncio.create_task(other.run(["true"], needs={"search": 1}))
                await asyncio.sleep(0.1)
                assert not ran.done()
                await client.reconfigure(apis={"search": {"concurrency": more}})
                assert (await ran).ok
                held.cancel()
        assert behind.orchestrator.status().running == 0


async def test_what_cannot_change_is_refused_and_changes_nothing() -> None:
    async with both(WITH_SEARCH) as (behind, clients):
        before = behind.orchestrator.cluster
        behind.orchestrator.described = {"pools.cpu.cores": "2", "policy": "elastic"}
        for client in clients:
            with pytest.raises(BadInput, match=r"jobs\.x\.share: 0\.0 is not a share"):
                await client.reconfigure(shares={"x": 0})
            with pytest.raises(BadInput, match=r"apis\.maps: is not there; name one of: search"):
                await client.reconfigure(shares={"x": 5}, apis={"maps": {}})
            with pytest.raises(BadInput, match=r"apis\[\.\.\.\]\.limit: expected `int` >= 1"):
                await client.reconfigure(apis={"search": {"limit": 0}})
            with pytest.raises(BadInput, match="cores: is not an option of a cluster that runs"):
                await client.reconfigure(cores=4)  # type: ignore[call-arg]
            wanted = Reconfiguration(
                shares={"x": 5}, fixed={"pools.cpu.cores": "4", "policy": "elastic"}
            )
            with pytest.raises(BadInput, match="cores: is 2 and cannot become 4 while the cluster"):
                await client.backend.reconfigure(wanted)
        assert behind.orchestrator.cluster == before


async def test_what_was_changed_is_in_the_journal_and_a_restart_takes_what_it_is_told(
    tmp_path: Path,
) -> None:
    """Alive trajectories do not keep a cluster from other shares and quotas after a restart."""
    path = tmp_path / "journal.sqlite"
    agent = LocalAgent(NodeId("cpu-0"), FakeProvider(), now=asyncio.get_running_loop().time)
    journal, past = await open_journal(path)
    async with fake_cluster(WITH_SEARCH, journal=journal, past=past, agent=agent) as client:
        await client.trajectory(id="t").open()
        changed = {"shares": {"y": 3}, "limits": {"y": {"max_trajectories": 2}}}
        await client.reconfigure(**changed, apis={"search": {"limit": 7}})
        now = client.orchestrator.cluster
        assert now.pools[SEARCH] == QuotaSpec(limit=7)
    await journal.close()
    same = structs.replace(WITH_SEARCH, cluster=now)
    other = structs.replace(WITH_SEARCH.cluster, shares={JobId("z"): 4})
    for setup in (same, structs.replace(WITH_SEARCH, cluster=other)):
        journal, past = await open_journal(path)
        async with fake_cluster(setup, journal=journal, past=past, agent=agent) as client:
            await client.orchestrator.written()
            assert client.orchestrator.cluster == setup.cluster
            assert (await client.status()).trajectories == 1
        await journal.close()
    await agent.aclose()
