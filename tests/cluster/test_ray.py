"""Agents on a real Ray cluster of three hosts: joined, adopted, ended. One story, test by test."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from busy_machine import PATIENCE_S, within
from hosts import CAN_MAKE_HOSTS, WHY_NOT, some_hosts
from process_support import is_alive

import artangram
from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client
from artangram_bench.rayhosts import HASTY, RayHost, until
from artangram_bench.soakload import Load
from artangram_bench.soakwatch import Watch

pytest.importorskip("ray", reason="needs Ray: pip install 'artangram[ray]'")
pytestmark = pytest.mark.skipif(not CAN_MAKE_HOSTS, reason=WHY_NOT)

TOKEN = "callers-token"
FREE = """
import ray, sys
ray.init("auto", logging_level="ERROR", log_to_driver=False)
print(ray.available_resources().get(sys.argv[1], 0.0))
"""
SEEN = """
import ray, sys, time
ray.init("auto", logging_level="ERROR", log_to_driver=False)
print("looking", flush=True)
while not any(n["Alive"] and n["NodeManagerHostname"] == sys.argv[1] for n in ray.nodes()):
    time.sleep(0.02)
print("seen", flush=True)
"""
GROUP = """
import ray, sys
from ray.util.placement_group import placement_group
ray.init("auto", namespace="framework", logging_level="ERROR", log_to_driver=False)
wanted = {"CPU": 1, f"node:{sys.argv[1]}": 0.01}
group = placement_group([wanted], name="trainers", lifetime="detached")
ray.get(group.ready(), timeout=60)
"""


class RayWorld:
    """Three hosts with Ray, and the head of a cluster on the first."""

    def __init__(self, hosts: list[RayHost], folder: Path) -> None:
        self.head, self.worker, self.late = hosts
        self.log = folder / "up.log"
        self._folder = folder
        self._up: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self, *more: str) -> None:
        told = self._folder / "serves.json"
        told.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        state = ("--state-dir", str(self._folder / "state"), "--json", str(told))
        self._up = self.head.artangram(
            "up", "--ray", "auto", *state, *more, log=self.log, ARTANGRAM_TOKEN=TOKEN
        )
        until(lambda: told.exists() and told.read_text().endswith("}\n"), self.log)
        self.url = json.loads(told.read_text())["url"]

    def stop(self) -> int:
        """SIGTERM for the head, as a service manager sends it."""
        assert self._up is not None
        for pid in self.head.pids("from artangram.cli", "--ray"):
            os.kill(pid, signal.SIGTERM)
        return self._up.wait(PATIENCE_S)

    def says(self, text: str) -> None:
        """Wait until the head has printed it."""
        until(lambda: text in self.log.read_text(), self.log)

    def agent(self, host: RayHost) -> int:
        """The pid of the agent of a host, which has one."""
        (pid,) = host.pids("from artangram.cli", "--join", "--node")[-1:]
        return pid


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayWorld]:
    folder = tmp_path_factory.mktemp("ray")
    with some_hosts(3, net=85) as made:
        hosts = [RayHost(host, folder, **HASTY) for host in made]
        for host in hosts:
            host.boot()
        world = RayWorld(hosts, folder)
        world.head.start_ray(world.head, cpus=1)
        with ThreadPoolExecutor() as meanwhile:
            meanwhile.submit(world.worker.start_ray, world.head, cpus=1)
            world.start()
        yield world


async def until_joined(client: Client, *names: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not set(names) <= await trusted(client):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.05)


async def trusted(client: Client) -> set[str]:
    return {node.node for node in (await client.status()).nodes if node.state == "trusted"}


async def num_running(client: Client) -> int:
    return sum(node.running for node in (await client.status()).nodes)


async def all_busy(client: Client, count: int, seconds: float) -> list[asyncio.Task[int | None]]:
    """Actions on `count` nodes, which have one core each, all of them started."""

    async def one() -> int | None:
        async with client.trajectory(memory_mb=64) as t:
            return (await t.run(["sleep", str(seconds)])).exit_code

    running = [asyncio.create_task(one()) for _ in range(count)]
    async with asyncio.timeout(PATIENCE_S):
        while await num_running(client) < count:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.05)
    return running


async def test_nodes_of_ray_get_agents_and_run_actions(world: RayWorld) -> None:
    async with artangram.connect(world.url, token=TOKEN) as client:
        await until_joined(client, world.worker.name)
        running = await all_busy(client, 2, 0.5)
        assert await asyncio.gather(*running) == [0, 0]


async def test_rays_own_tasks_find_no_cpu_that_is_claimed(world: RayWorld) -> None:
    world.says(f"Ray node {world.head.name}: claimed 1 CPUs for the head")
    assert await asyncio.to_thread(world.head.python, FREE, "CPU") == "0.0\n"


async def test_ray_tells_callers_where_the_head_is(world: RayWorld) -> None:
    async with artangram.connect(f"ray://{world.head.ray_address}") as client:
        assert world.worker.name in {node.node for node in (await client.status()).nodes}


async def test_a_second_head_on_the_same_ray_is_refused(world: RayWorld, tmp_path: Path) -> None:
    log = tmp_path / "second.log"
    second = world.head.artangram(
        *("up", "--ray", "auto", "--state-dir", str(tmp_path / "state"), "--port", "0"),
        *("--agents", f"{world.head.host.address}:0"),
        log=log,
    )
    assert await asyncio.to_thread(second.wait, PATIENCE_S) == 2
    said = " ".join(log.read_text().split())
    assert f"another Artangram serves on this Ray cluster, at {world.url}; stop it first" in said


async def test_a_node_that_is_added_to_ray_joins_within_5_s(
    world: RayWorld, tmp_path: Path
) -> None:
    log = tmp_path / "seen.log"
    looking = world.head.start(sys.executable, "-c", SEEN, world.late.name, log=log)
    await asyncio.to_thread(until, lambda: "looking" in log.read_text(), log)
    adding = asyncio.create_task(asyncio.to_thread(world.late.start_ray, world.head, cpus=1))
    await asyncio.to_thread(until, lambda: "seen" in log.read_text(), log)
    joined = f"{world.late.name} joined"
    agents_log = f"*{world.late.name}.log"
    assert await within(
        5.0, lambda: any(joined in file.read_text() for file in Path("/tmp").glob(agents_log))
    )
    await adding
    assert looking.wait(PATIENCE_S) == 0
    async with artangram.connect(world.url, token=TOKEN) as client:
        await until_joined(client, world.late.name)


async def test_an_agent_outlives_its_warden(world: RayWorld) -> None:
    agent = world.agent(world.worker)
    async with artangram.connect(world.url, token=TOKEN) as client:
        running = await all_busy(client, 3, 3.0)
        (warden,) = world.worker.pids("ray::Warden")
        os.kill(warden, signal.SIGKILL)
        assert await asyncio.gather(*running) == [0, 0, 0]
    world.says(f"Ray node {world.worker.name}: claimed 1 CPUs and adopted its agent")
    assert world.agent(world.worker) == agent


async def test_an_agent_outlives_its_raylet(world: RayWorld) -> None:
    agent = world.agent(world.late)
    async with artangram.connect(world.url, token=TOKEN) as client:
        running = await all_busy(client, 3, 3.0)
        for raylet in world.late.pids("raylet/raylet"):
            os.kill(raylet, signal.SIGKILL)
        assert await asyncio.gather(*running) == [0, 0, 0]
        await asyncio.to_thread(world.says, f"Ray node {world.late.name}: Ray has lost it")
        assert world.late.name in await trusted(client), "it needs no raylet to go on"
    await asyncio.to_thread(world.late.start_ray, world.head, cpus=1)
    adopted = f"Ray node {world.late.name}: claimed 1 CPUs and adopted its agent"
    await asyncio.to_thread(world.says, adopted)
    assert world.agent(world.late) == agent


async def test_every_action_ends_once_while_raylets_are_killed(world: RayWorld) -> None:
    hosts = (world.worker, world.late)
    is_over = asyncio.Event()
    with Watch(
        lambda: {pid: h.name for h in hosts for pid in h.host.pids()}, checks_cores=False
    ) as watch:
        async with artangram.connect(world.url, token=TOKEN) as client:
            load = Load(
                client,
                is_over=lambda _: is_over.is_set(),
                rng=Random(1),
                host_of=watch.host_of_action,
                may_fail=lambda host, at: False,
            )
            acting = asyncio.create_task(load.run(6))
            await asyncio.gather(*(asyncio.to_thread(raylet_lost, world, h) for h in hosts))
            is_over.set()
            await acting
            await load.ask_again()
    runs = Counter(run.action for run in watch.seen)
    assert (load.violations, watch.error) == ([], None)
    assert len(load.actions) > 20
    assert {run.host for run in watch.seen} >= {host.name for host in hosts}
    assert set(runs.values()) == {1}, "no action ran twice"


def raylet_lost(world: RayWorld, host: RayHost) -> None:
    """Kill the raylet of a host; return when Ray has lost the node, and has it again."""
    lost, again = f"{host.name}: Ray has lost it", f"{host.name}: claimed 1 CPUs and adopted"
    before = {text: world.log.read_text().count(text) for text in (lost, again)}
    for raylet in host.pids("raylet/raylet"):
        os.kill(raylet, signal.SIGKILL)
    until(lambda: world.log.read_text().count(lost) > before[lost], world.log)
    host.start_ray(world.head, cpus=1)
    until(lambda: world.log.read_text().count(again) > before[again], world.log)


async def test_a_drained_node_gives_its_cpus_back(world: RayWorld) -> None:
    async with artangram.connect(world.url, token=TOKEN) as client:
        await client.drain(world.late.name)
    await asyncio.to_thread(world.says, f"Ray node {world.late.name}: its agent has left")
    assert await asyncio.to_thread(world.head.python, FREE, "CPU") == "1.0\n"


async def test_closing_leaves_no_process_and_no_claim(world: RayWorld) -> None:
    agent = world.agent(world.worker)
    assert world.stop() == 0
    assert not is_alive(agent)
    for host in (world.head, world.worker, world.late):
        assert host.pids("artangram") == []
    assert await asyncio.to_thread(world.head.python, FREE, "CPU") == "3.0\n"
    with pytest.raises(BadInput, match="no Artangram serves on the Ray cluster"):
        async with artangram.connect(f"ray://{world.head.ray_address}"):
            pass


async def test_a_placement_group_is_all_that_is_claimed(world: RayWorld) -> None:
    await asyncio.to_thread(world.head.python, GROUP, world.worker.host.address)
    world.start("--ray-placement-group", "trainers", "--cores", "1")
    async with artangram.connect(world.url, token=TOKEN) as client:
        await until_joined(client, world.worker.name)
    assert f"Left out Ray node {world.late.name}: the placement group" in world.log.read_text()
    assert await asyncio.to_thread(world.head.python, FREE, "CPU") == "2.0\n"
    assert world.stop() == 0
    assert world.worker.pids("artangram") == []


async def test_gpus_are_left_to_ray_or_claimed_with_their_node(world: RayWorld) -> None:
    for raylet in world.late.pids("raylet/raylet"):
        os.kill(raylet, signal.SIGKILL)
    await asyncio.to_thread(world.late.start_ray, world.head, cpus=1, more=("--num-gpus", "2"))
    left = f"Left out Ray node {world.late.name}: it has 2 GPUs; add --ray-gpu-nodes"
    claimed = f"Ray node {world.late.name}: claimed 1 CPUs, 2 GPUs and started its agent"
    for option, told, free in ((), left, "2.0\n"), (("--ray-gpus",), claimed, "0.0\n"):
        world.start(*option)
        await asyncio.to_thread(world.says, told)
        assert await asyncio.to_thread(world.head.python, FREE, "GPU") == free
        if option:
            assert "CUDA_VISIBLE_DEVICES=0,1" in environ_of(world.agent(world.late))
            async with artangram.connect(world.url, token=TOKEN) as client:
                await until_joined(client, world.late.name)
                (node,) = (n for n in (await client.status()).nodes if n.node == world.late.name)
            assert node.labels["gpus"] == "2"
        assert world.stop() == 0
    assert await asyncio.to_thread(world.head.python, FREE, "GPU") == "2.0\n"


def environ_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")
