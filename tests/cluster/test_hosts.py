"""A cluster of several hosts, in network namespaces: partitions, power failures, restarts."""

import asyncio
import os
import platform
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S
from hosts import CAN_MAKE_HOSTS, TOKEN, WHY_NOT, Host, HostCluster, some_hosts

import artangram
from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.client import Client
from artangram.orchestrator.providing import provider_labels
from artangram.orchestrator.records import Unreachable
from artangram.orchestrator.trajectory import TrajectoryHandle
from artangram.sandbox import SandboxError
from artangram.sandbox.protocol import Snapshot

pytestmark = pytest.mark.skipif(not CAN_MAKE_HOSTS, reason=WHY_NOT)


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    with some_hosts(3) as made:
        yield made


@pytest.fixture
def cluster(hosts: list[Host], tmp_path: Path) -> Iterator[HostCluster]:
    made = HostCluster(hosts, tmp_path)
    made.start_head()
    for worker in made.workers:
        made.start_agent(worker)
    yield made
    for host in hosts:
        host.heal()
        host.power_off()


@asynccontextmanager
async def connected(cluster: HostCluster) -> AsyncIterator[Client]:
    async with artangram.connect(cluster.url, token=TOKEN) as client:
        yield client


async def one_action(client: Client, argv: list[str]) -> bool:
    """Did it succeed? Not if its host was lost."""
    try:
        async with client.trajectory(memory_mb=64) as t:
            return (await t.run(argv)).exit_code == 0
    except (InfraFailed, SandboxError):
        return False


async def busy_nodes(client: Client) -> set[str]:
    """The nodes that took part when there was work for all of them."""
    work = [asyncio.create_task(one_action(client, ["sleep", "1"])) for _ in range(6)]
    seen: set[str] = set()
    while not all(task.done() for task in work):
        seen |= {node.node for node in (await client.status()).nodes if node.running}
        await asyncio.sleep(0.1)
    assert all([await task for task in work])
    return seen


async def test_work_goes_to_every_host(cluster: HostCluster) -> None:
    async with connected(cluster) as client:
        assert len(await busy_nodes(client)) == 3


async def test_siblings_of_a_snapshot_succeed_on_every_host(cluster: HostCluster) -> None:
    async def sibling(client: Client, source: Snapshot) -> str:
        async with client.trajectory(memory_mb=64, source=source) as t:
            return (await t.run(["cat", "note"])).stdout

    async with connected(cluster) as client:
        handles = [await client.trajectory(memory_mb=64).open() for _ in range(6)]
        for number, handle in enumerate(handles):
            await handle.write("note", str(number))
        taken = [await handle.snapshot() for handle in handles]
        assert len({snapshot.node for snapshot in taken}) == 3
        wanted = [(str(number), source) for number, source in enumerate(taken) for _ in range(3)]
        found = await asyncio.gather(*(sibling(client, source) for _, source in wanted))
        assert found == [number for number, _ in wanted]
        for handle in handles:
            await handle.close()


async def test_a_snapshot_travels_to_every_host_and_outlives_its_own(cluster: HostCluster) -> None:
    content, look = os.urandom(10 << 20), "cat note link; ls -d old 2> /dev/null; rm -rf old"

    async def sibling(client: Client, source: Snapshot) -> tuple[TrajectoryHandle, str]:
        handle = await client.trajectory(memory_mb=64, problem="p", source=source).open()
        return handle, (await handle.run(["sh", "-c", look])).stdout

    async with connected(cluster) as client:
        handles = [await client.trajectory(memory_mb=64, problem="p").open() for _ in range(6)]
        taken = []
        for handle in handles:
            await handle.write("large", content)
            await handle.run(["sh", "-c", "echo x > note; ln note link; mkdir old"])
            taken.append(await handle.snapshot())
        worker = cluster.workers[0].name
        source = next(snapshot for snapshot in taken if snapshot.node == worker)
        siblings = await asyncio.gather(*(sibling(client, source) for _ in range(6)))
        assert [said for _, said in siblings] == ["x\nx\nold\n"] * 6
        for handle, _ in siblings:
            assert await handle.read("large") == content
        nodes = (await client.status()).nodes
        assert all(node.population and node.population.sandboxes > 2 for node in nodes)
        await client.drain(worker)
        layered = await siblings[0][0].snapshot()
        keeps = await client.trajectory(memory_mb=64, problem="p").open()  # The group goes on.
        for handle in [*(one for one, _ in siblings), *handles]:
            await handle.close()
        async with asyncio.timeout(PATIENCE_S):
            while worker in {node.node for node in (await client.status()).nodes}:
                assert await one_action(client, ["true"])
        for one, printed in ((source, "x\nx\nold\n"), (layered, "x\nx\n")):
            handle, said = await sibling(client, one)
            assert said == printed
            await handle.close()
        await keeps.close()


async def test_status_shows_what_a_host_has(cluster: HostCluster) -> None:
    worker = cluster.workers[0]
    worker.power_off()
    cluster.start_agent(worker, "--label", "disk=fast", "--memory-mb", "2000")
    async with connected(cluster) as client:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                nodes = {node.node: node for node in (await client.status()).nodes}
                if worker.name in nodes and nodes[worker.name].labels:
                    break
                await asyncio.sleep(0.1)
        found = nodes[worker.name]
    assert (found.state, found.cores, found.memory_mb) == ("trusted", 1, 2000)
    assert found.labels == {"disk": "fast", **provider_labels(["namespace"])}


async def test_a_partition_of_seconds_fails_nothing(cluster: HostCluster) -> None:
    async with connected(cluster) as client:
        running = [asyncio.create_task(one_action(client, ["sleep", "3"])) for _ in range(3)]
        await asyncio.sleep(1.0)
        for worker in cluster.workers:
            worker.cut()
        await asyncio.sleep(8.0)
        states = {node.node: node.state for node in (await client.status()).nodes}
        assert {states.pop(worker.name) for worker in cluster.workers} == {"suspect"}
        assert list(states.values()) == ["trusted"]
        for worker in cluster.workers:
            worker.heal()
        assert await asyncio.gather(*running) == [True, True, True]
        assert len(await busy_nodes(client)) == 3


async def test_a_host_that_loses_power_costs_only_its_own(cluster: HostCluster) -> None:
    lost, _ = cluster.workers
    async with connected(cluster) as client:
        running = [asyncio.create_task(one_action(client, ["sleep", "5"])) for _ in range(3)]
        await asyncio.sleep(2.0)
        lost.power_off()
        cluster.start_agent(lost)  # Its new incarnation tells that the one before is gone.
        assert sorted(await asyncio.gather(*running)) == [False, True, True]
        assert len(await busy_nodes(client)) == 3


async def test_a_head_that_loses_power_goes_on_with_what_runs(cluster: HostCluster) -> None:
    async with connected(cluster) as client:
        keys = [f"key-{number}" for number in range(6)]
        for key in keys:
            await client.trajectory(memory_mb=64, id=key).__aenter__()
        assert len(await busy_nodes(client)) == 3
    cluster.head.power_off()
    cluster.start_head()
    async with connected(cluster) as client:
        assert (await client.status()).trajectories == 6
        async with asyncio.timeout(60.0):  # Agents dial again when they miss the head.
            while len(await busy_nodes(client)) < 3:
                pass
        logs = [log.read_text() for log in cluster.logs()]
        assert not any("ending everything" in log for log in logs)


async def test_a_caller_hears_that_the_head_lost_power(cluster: HostCluster) -> None:
    async with connected(cluster) as client, client.trajectory(memory_mb=64) as t:
        assert (await t.run(["true"])).ok
        waiting = asyncio.create_task(t.run(["sleep", "1"], key="once"))
        await asyncio.sleep(0.2)
        cluster.head.lose_power()  # Its kernel tells no peer: the caller has to find out.
        await asyncio.to_thread(cluster.start_head)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(Unreachable):
                await waiting
            again = await t.run(["sleep", "1"], key="once")
        assert again.outcome in (
            Outcome.SUCCEEDED,
            Outcome.INFRA_FAILED,
        )  # It may live at the head.


async def test_a_head_goes_on_at_another_machine(tmp_path: Path) -> None:
    with some_hosts(3, net=82) as (first, second, worker):
        cluster = HostCluster([first, worker], tmp_path)
        await asyncio.to_thread(cluster.start_head)
        await asyncio.to_thread(cluster.start_agent, worker, "--join", f"{second.address}:7411")
        count = ["sh", "-c", "echo x >> runs; sleep 6; cat runs"]
        async with connected(cluster) as client:
            await client.drain("cpu-0")  # What runs on the head's own cores is lost with them.
            t = await client.trajectory(memory_mb=64, id="t").__aenter__()
            await t.write("note", b"kept")
            running = asyncio.create_task(t.run(count, key="once"))
            await asyncio.sleep(1.0)
            first.lose_power()
            cluster.head, cluster.state = second, tmp_path / "moved"
            await asyncio.to_thread(shutil.copytree, tmp_path / "state", cluster.state)
            await asyncio.to_thread(cluster.start_head)
            running.cancel()
        async with connected(cluster) as client, asyncio.timeout(PATIENCE_S):
            t = client.trajectory(id="t")
            assert (await t.run(count, key="once")).stdout == "x\n"
            assert await t.read("note") == b"kept"
            await t.close()


async def test_the_doctor_examines_every_host_and_names_the_one_that_is_cut_off(
    cluster: HostCluster,
) -> None:
    async with connected(cluster) as client:
        found = await client.diagnose()
        assert len(found.nodes) == 3
        for node in found.nodes:
            assert node.examination is not None
            assert node.examination.version == found.version
            assert (node.mb_per_s or 0.0) > 0.0
            assert abs(node.clock_ahead_s or 0.0) < PATIENCE_S  # All have this machine's clock.
        far = cluster.workers[0]
        far.cut()
        found = await client.diagnose()
        silent = [node.node for node in found.nodes if node.examination is None]
        assert (silent, found.is_well) == ([far.name], False)


async def test_functions_run_on_every_host_and_outlive_one(
    hosts: list[Host], tmp_path: Path
) -> None:
    described = "functions: ['platform:node', 'subprocess:call']\n"
    made = HostCluster(hosts, tmp_path, described=described)
    await asyncio.to_thread(made.start_head)
    try:
        for worker in made.workers:
            await asyncio.to_thread(made.start_agent, worker, "--function-slots", "2")
        async with connected(made) as client, asyncio.timeout(PATIENCE_S):
            name, pause = client.function(platform.node), client.function(subprocess.call)
            slots = {one.resource: one.capacity for one in (await client.status()).pools}
            assert slots["functions"] == 5
            seen: set[str] = set()
            while seen != {host.name for host in hosts}:
                seen |= set(await asyncio.gather(*(name() for _ in range(10))))
            pauses = [asyncio.create_task(pause(["sleep", "4"])) for _ in range(5)]
            await asyncio.sleep(1.0)
            where = {one.where for one in (await client.status()).longest}
            assert {f"functions on {worker.name}" for worker in made.workers} <= where
            lost, kept = made.workers
            lost.power_off()
            await asyncio.to_thread(made.start_agent, lost)  # Its calls are made again elsewhere.
            assert await asyncio.gather(*pauses) == [0] * 5
            await client.drain(kept.name)
            assert set(await asyncio.gather(*(name() for _ in range(5)))) == {made.head.name}
    finally:
        for host in hosts:
            host.power_off()
