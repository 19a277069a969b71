"""A real Prometheus reads the metrics of a service, and promtool finds nothing to complain of."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from artangram.aio import listening
from artangram.orchestrator.server import serving
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
TOKEN = "a-token-of-this-test"
PATIENCE_S = 60.0
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None,
    reason="no prometheus: sh tests/install_engine.sh metrics brings one",
)


@asynccontextmanager
async def a_service() -> AsyncIterator[tuple[FakeCluster, str]]:
    """One that has run something under names that need quoting."""
    setup = a_setup(cores=4, memory_mb=8192, policy="fcfs")
    async with fake_cluster(setup) as cluster, serving(cluster.orchestrator, token=TOKEN) as url:
        async with cluster.trajectory(job='red "one"\\', task="swe\n") as t:
            for _ in range(3):
                await t.run(["true"], kind='tests/"quoted"')
        yield cluster, url


async def test_promtool_is_content_with_every_metric() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        a_service() as (_, url),
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{url}/metrics") as answer,
    ):
        text = await answer.read()
    assert PROMTOOL is not None
    checked = await asyncio.to_thread(
        subprocess.run, [PROMTOOL, "check", "metrics"], input=text, capture_output=True
    )
    assert (checked.returncode, checked.stderr.decode(), checked.stdout.decode()) == (0, "", "")


@asynccontextmanager
async def a_prometheus(place: Path, url: str) -> AsyncIterator[str]:
    """Prometheus itself, which scrapes `url` every second; its address."""
    with listening("127.0.0.1", 0) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    (place / "token").write_text(TOKEN)
    (place / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        "- job_name: artangram\n"
        f"  authorization: {{credentials_file: {place / 'token'}}}\n"
        f"  static_configs: [{{targets: ['{url.removeprefix('http://')}']}}]\n"
    )
    words = [f"--config.file={place / 'prometheus.yml'}", f"--storage.tsdb.path={place / 'data'}"]
    assert PROMETHEUS is not None
    process = await asyncio.create_subprocess_exec(
        *(PROMETHEUS, *words, f"--web.listen-address={address}", "--log.level=error")
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        await process.wait()


async def test_prometheus_itself_scrapes_a_service(tmp_path: Path) -> None:
    query = 'artangram_action_completion_seconds_count{kind="tests/\\"quoted\\""}'
    async with (
        a_service() as (_, url),
        a_prometheus(tmp_path, url) as prometheus,
        aiohttp.ClientSession() as session,
        asyncio.timeout(PATIENCE_S),
    ):
        found: list[object] = []
        while not found:
            try:
                params = {"query": query}
                async with session.get(f"{prometheus}/api/v1/query", params=params) as answer:
                    found = (await answer.json())["data"]["result"]
            except aiohttp.ClientError:  # It is still opening.
                pass
            await asyncio.sleep(0.3)
        values = [one["value"][1] for one in found]  # type: ignore[index]
        assert sum(map(float, values)) == 3
