"""`artangram up --local 3`: a cluster of this machine's agents, from one command."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S
from process_support import environ, is_alive

import artangram
from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client

VERB = [sys.executable, "-c", "from artangram.cli import main; main()"]
TOKEN = "callers-token"
NAMES = ("local-1", "local-2", "local-3")


@dataclass
class Served:
    """A service that was started, and what it printed."""

    process: subprocess.Popen[bytes]
    url: str
    printed: Path

    def verb(self, *words: str) -> str:
        """What a verb prints that speaks to this service."""
        reach = environ(ARTANGRAM_URL=self.url, ARTANGRAM_TOKEN=TOKEN)
        return subprocess.run(
            [*VERB, *words], env=reach, text=True, stdout=subprocess.PIPE, check=True
        ).stdout

    def agents(self) -> dict[str, int]:
        """Process ids by node."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = {}
        for pid in map(int, children.read_text().split()):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if "--join" in words:
                found[words[words.index("--node") + 1]] = pid
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("local")
    printed, told = folder / "printed", folder / "serves.json"
    words = ("up", "--local", "3", "--port", "0", "--state-dir", str(folder / "s"))
    with printed.open("wb") as out:
        process = subprocess.Popen(
            [*VERB, *words, "--json", str(told)],
            env=environ(ARTANGRAM_TOKEN=TOKEN),
            stdout=out,
            stderr=out,
        )
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while not (told.exists() and told.read_text().endswith("}\n")):
            assert process.poll() is None, printed.read_text()
            assert time.monotonic() < give_up_at, printed.read_text()
            time.sleep(0.05)
        yield Served(process, json.loads(told.read_text())["url"], printed)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


async def until_joined(client: Client, names: tuple[str, ...] = NAMES) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if set(names) <= {node.node for node in (await client.status()).nodes}:
                return
            await asyncio.sleep(0.1)


async def busy(client: Client) -> set[str]:
    return {node.node for node in (await client.status()).nodes if node.running}


async def work(client: Client) -> None:
    async with client.trajectory(memory_mb=64) as t:
        assert (await t.run(["sleep", "1"])).exit_code == 0


async def test_work_runs_on_all_of_them(served: Served) -> None:
    async with artangram.connect(served.url, token=TOKEN) as client:
        await until_joined(client)
        running = [asyncio.create_task(work(client)) for _ in range(8)]
        seen: set[str] = set()
        while not all(task.done() for task in running):
            seen |= await busy(client)
            await asyncio.sleep(0.1)
        await asyncio.gather(*running)
    assert seen >= set(NAMES)


def test_it_says_what_it_started(served: Served) -> None:
    said = served.printed.read_text()
    assert all(f"Started {name} with core" in said for name in NAMES)
    assert "export ARTANGRAM_URL=" in said
    assert "To join another machine" not in said, "nothing but this machine can reach it"
    cores = len(os.sched_getaffinity(0))
    assert ("some share one" in said) == (cores < 4)


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while is_alive(pid):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.1)


async def test_a_drained_agent_leaves_when_its_last_trajectory_has_ended(served: Served) -> None:
    agents = served.agents()
    async with artangram.connect(served.url, token=TOKEN) as client:
        await until_joined(client)
        await asyncio.to_thread(served.verb, "drain", "local-3", "--undo")
        handles = [await client.trajectory(memory_mb=64).open() for _ in range(8)]
        running = [asyncio.create_task(t.run(["sleep", "2"])) for t in handles]
        async with asyncio.timeout(PATIENCE_S):
            while "local-3" not in await busy(client):  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.1)
        said = await asyncio.to_thread(served.verb, "drain", "local-3")
        assert said == (
            "local-3 gets no new trajectories, and leaves when the last one there is closed.\n"
        )
        assert [(await one).exit_code for one in running] == [0] * 8
        assert is_alive(agents["local-3"]), "its trajectories have files there"
        for t in handles:
            await t.close()
        await until_gone(agents["local-3"])
        assert "local-3" not in {node.node for node in (await client.status()).nodes}
        with pytest.raises(BadInput, match="this cluster has no 'local-3'"):
            await client.drain("local-3", undo=True)
        await asyncio.gather(*(work(client) for _ in range(4)))
    log = (served.printed.parent / "s" / "local-3.log").read_text()
    assert log.endswith("local-3 was drained and has left the cluster\n")


def test_agents_end_with_the_head(served: Served) -> None:
    agents = served.agents()
    assert set(agents) == set(NAMES) - {"local-3"}
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=60) == 0
    assert not any(map(is_alive, agents.values()))
