"""The dashboard in a real Chromium: no complaints, the numbers of the API, a restart, axe."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from browser import Page, a_page
from dashboard_builders import AXE, EVIL, in_chromium

from artangram.aio import listening
from artangram.dashboard import pages
from artangram.orchestrator.client import Client
from artangram.orchestrator.server import serving
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

TOKEN = "a token of this test"


def a_free_port() -> int:
    with listening("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


@asynccontextmanager
async def a_service(port: int = 0) -> AsyncIterator[tuple[FakeCluster, str]]:
    setup = a_setup(cores=4, memory_mb=8192, policy="fcfs")
    async with (
        fake_cluster(setup) as cluster,
        serving(cluster.orchestrator, port=port, token=TOKEN, pages=pages) as url,
    ):
        yield cluster, url


@asynccontextmanager
async def busy(cluster: Client) -> AsyncIterator[None]:
    """Some that ended, three that run, one that waits; hostile names among them."""
    async with (
        cluster.trajectory(job=EVIL, task=EVIL, memory_mb=500) as evil,
        cluster.trajectory(job="red", task="swe", memory_mb=500) as red,
        cluster.trajectory(job="blue", memory_mb=500) as blue,
    ):
        for _ in range(5):
            await red.run(["true"], kind="tests")
        await evil.run(["echo", EVIL + "\x1b[2J" + "x" * 100_000], kind=EVIL)
        running = [
            asyncio.create_task(evil.run(["sleep", "1000"], kind=EVIL, cpu=2)),
            asyncio.create_task(red.run(["sleep", "1000"], kind="tests", cpu=2)),
            asyncio.create_task(blue.run(["true"], kind="quick")),
        ]
        await asyncio.sleep(0.5)
        yield
        for one in running:
            one.cancel()


async def sign_in(page: Page, url: str) -> None:
    """As a person does, with the form. The refusal before it is no complaint about the page."""
    await page.open(f"{url}/dashboard")
    await page.value(
        f"document.getElementById('token').value = {json.dumps(TOKEN)};"
        "document.querySelector('form').submit()"
    )
    await page.until("document.body.dataset.at")
    page.complaints = [one for one in page.complaints if "401" not in one]


@in_chromium
async def test_a_page_shows_the_numbers_of_the_api_without_complaints(tmp_path: Path) -> None:
    async with a_service() as (cluster, url), busy(cluster), a_page(tmp_path) as page:
        await sign_in(page, url)
        status = await cluster.status()
        shown = await page.value(
            "Object.fromEntries([...document.querySelectorAll('[data-pool]')]"
            ".map((tile) => [tile.dataset.pool, Number(tile.dataset.used)]))"
        )
        assert shown == {one.resource: one.used for one in status.pools}
        assert shown["cpu"] == 4
        summary = await page.value("document.getElementById('summary').textContent")
        assert "2 running, 1 waiting, 6 ended, 3 trajectories" in summary
        queue = await page.value("document.getElementById('queue-rows').innerText")
        assert "quick" in queue
        assert status.waiting[0].reason in queue
        jobs = await page.value("document.getElementById('jobs-rows').innerText")
        assert EVIL in jobs
        assert await page.value("document.querySelectorAll('.kind').length") == 2
        assert await page.value("document.querySelectorAll('.uplot canvas').length") == 1
        assert await page.value("window.owned") is None
        assert await page.value("document.querySelectorAll('main img, main script').length") == 0
        before = await page.value("document.body.dataset.at")
        await page.until(f"document.body.dataset.at !== '{before}'")
        await page.key("/")
        assert await page.value("document.activeElement.id") == "filter"
        assert page.complaints == []


@in_chromium
async def test_an_action_has_a_link_and_its_history_explanation_and_output(tmp_path: Path) -> None:
    async with a_service() as (cluster, url), busy(cluster), a_page(tmp_path) as page:
        await sign_in(page, url)
        (waiting,) = (await cluster.status()).waiting
        await page.value("document.querySelector('#queue-rows a').click()")
        await page.until("document.getElementById('action').open")
        told = await page.value("document.getElementById('action').innerText")
        assert waiting.action in told
        assert "submitted" in told
        assert "starts when" in told
        link = await page.value("location.href")
        await page.key("Escape")
        await page.until("!document.getElementById('action').open")
        await page.open("about:blank")
        await page.open(link)  # A deep link.
        await page.until("document.getElementById('action').open")
        evil = next(
            record.action_id
            for entry in cluster.orchestrator.ledger.recent
            for decision in entry.decisions
            if (record := getattr(decision, "record", None)) is not None and record.kind == EVIL
        )
        await page.value(f"location.hash = 'action/' + encodeURIComponent({json.dumps(evil)})")
        await page.until(
            "document.querySelector('#action-title').textContent.includes('" + evil + "')"
        )
        assert await page.value("window.owned") is None
        assert page.complaints == []


@in_chromium
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_everybody_can_use_it(tmp_path: Path, theme: str) -> None:
    async with a_service() as (cluster, url), busy(cluster), a_page(tmp_path) as page:
        await sign_in(page, url)
        await page.value(f"document.documentElement.dataset.theme = '{theme}'")
        await page.until("document.querySelectorAll('#queue-rows a').length")
        # The page forbids other scripts; the debugger may run one.
        await page.value(AXE.read_text() + "; 0")
        found = await page.value(
            "axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes[0].html))"
        )
        assert found == []
        await page.resize(390, 800)
        await asyncio.sleep(0.3)
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1"
        await page.until(wide)
        found = await page.value("axe.run().then((r) => r.violations.map((v) => v.id))")
        assert found == []


@in_chromium
async def test_a_page_survives_a_restart_of_its_service(tmp_path: Path) -> None:
    port = a_free_port()
    async with a_page(tmp_path) as page:
        async with a_service(port) as (cluster, url):
            async with cluster.trajectory() as t:
                await t.run(["true"])
            await sign_in(page, url)
            await page.until("document.body.dataset.ended === '1'")
        await page.until("!document.getElementById('offline').hidden")
        async with a_service(port) as (cluster, url):
            await page.until("document.getElementById('offline').hidden")
            await page.until("document.body.dataset.ended === '0'")
            assert await page.value("document.title") == "Artangram"


async def test_nothing_is_shown_without_the_token_or_to_other_sites() -> None:
    paths = ["/", "/dashboard", "/dashboard/view.json", "/dashboard/static/app.js"]
    paths += ["/dashboard/actions/x", "/dashboard?token=wrong"]
    with_token = {"Authorization": f"Bearer {TOKEN}"}
    jar = aiohttp.CookieJar(unsafe=True)
    async with a_service() as (_, url), aiohttp.ClientSession(cookie_jar=jar) as session:
        for path in paths:
            async with session.get(url + path, allow_redirects=False) as answer:
                assert (path, answer.status) == (path, 401)
                assert b"policy" not in await answer.read()
        for site in ("cross-site", "same-site"):
            headers = with_token | {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors"}
            async with session.get(f"{url}/dashboard/view.json", headers=headers) as answer:
                assert answer.status == 401
        headers = with_token | {"Origin": "http://evil.example"}
        async with session.get(f"{url}/dashboard/view.json", headers=headers) as answer:
            assert answer.status == 401
        async with session.get(f"{url}/dashboard?token={TOKEN}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/dashboard")
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert TOKEN not in cookie
        async with session.get(f"{url}/dashboard/view.json") as answer:  # With the cookie.
            assert answer.status == 200
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        async with session.get(f"{url}/v1/status") as answer:  # It opens pages only.
            assert answer.status == 401
        async with session.post(f"{url}/dashboard/login", data=b"x" * 10_000) as answer:
            assert answer.status == 413


async def test_what_a_page_gets_is_bounded_whatever_callers_name() -> None:
    async with a_service() as (cluster, url):
        for number in range(300):
            async with cluster.trajectory(job=f"job-{number}" + "x" * 500) as t:
                await t.run(["true"], kind=f"kind-{number}" + "y" * 500)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{url}/dashboard/view.json") as answer,
        ):
            body = await answer.read()
    assert len(body) < 2_000_000
    assert len(json.loads(body)["kinds"]) == 12
