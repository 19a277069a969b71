"""The dashboard of a training run, in a real Chromium: curves, attempts, a resumed run."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from browser import a_page
from dashboard_builders import AXE, EVIL, in_chromium
from exam_builder import an_exam
from starlette.applications import Starlette
from step_builder import a_step

from artangram.aio import listening, served
from artangram.dashboard.routes import pages
from artangram.dashboard.run import MOST_POINTS, MOST_TRANSCRIPTS, RunFollower
from artangram.dashboard.serving import run_pages, run_pages_beside
from artangram.pipeline import exams, metrics, transcripts
from artangram.pipeline.transcripts import Transcript, Utterance
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

TOKEN = "a-token-of-this-test"
SERVICE_TOKEN = "that-of-the-service"


def add_steps(place: Path, *steps: int) -> None:
    with (place / metrics.FILE_NAME).open("ab") as file:
        for step in steps:
            file.write(msgspec.json.encode(a_step(step, step / 10)) + b"\n")


def add_attempt(place: Path, step: int, said: str = "up") -> None:
    one = Transcript(
        step=step,
        task="maze",
        problem="7",
        trajectory=f"attempt-{step}",
        status="finished",
        reward=0.5,
        conversations=[[Utterance(False, "where?"), Utterance(True, said)]],
    )
    with (place / transcripts.FILE_NAME).open("ab") as file:
        file.write(gzip.compress(msgspec.json.encode(one) + b"\n"))


@asynccontextmanager
async def pages_of(place: Path) -> AsyncIterator[str]:
    setup = a_setup(cores=4, memory_mb=8192, policy="fcfs")
    follower = RunFollower(place, run="maze-run", planned=9)
    async with (
        fake_cluster(setup) as cluster,
        run_pages(cluster.orchestrator, follower, token=TOKEN) as link,
    ):
        yield link


@in_chromium
async def test_curves_and_attempts_appear_while_the_run_goes(tmp_path: Path) -> None:
    add_steps(tmp_path, 1, 2)
    add_attempt(tmp_path, 2, said=EVIL)
    async with pages_of(tmp_path) as link, a_page(tmp_path / "browser") as page:
        await page.open(link)
        await page.until("document.body.dataset.step === '2'")
        told = await page.value("document.getElementById('run-told').textContent")
        assert told == "maze-run, step 2 of 9"
        assert await page.value("document.querySelectorAll('#curves canvas').length") == 6
        legend = await page.value("document.querySelector('#curves').innerText")
        assert "reward/calc" in legend
        add_steps(tmp_path, 3)
        await page.until("document.body.dataset.step === '3'")
        await page.value("document.querySelector('#attempt-rows a').click()")
        await page.until("document.getElementById('attempt').open")
        said = await page.value("document.querySelector('#attempt .sampled').textContent")
        assert said == EVIL
        assert await page.value("window.owned") is None
        await page.value(AXE.read_text() + "; 0")
        found = await page.value(
            "axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes[0].html))"
        )
        assert found == []
        assert page.complaints == []


async def test_a_run_is_shown_to_holders_of_the_token_and_offers_nothing_else(
    tmp_path: Path,
) -> None:
    add_steps(tmp_path, 1)
    async with pages_of(tmp_path) as link, aiohttp.ClientSession() as session:
        url = link.partition("/dashboard")[0]
        for path in ("/dashboard/run.json", "/dashboard/transcripts.json"):
            async with session.get(url + path) as answer:
                assert answer.status == 401
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with session.get(url + path, headers=headers) as answer:
                assert answer.status == 200
        async with session.get(f"{url}/v1/status", headers=headers) as answer:
            assert answer.status == 404


@asynccontextmanager
async def a_service() -> AsyncIterator[tuple[str, FakeCluster]]:
    async with fake_cluster(a_setup(cores=4, memory_mb=8192, policy="fcfs")) as cluster:
        with listening("127.0.0.1", 0) as listener:
            async with (
                pages(cluster.orchestrator, SERVICE_TOKEN) as routes,
                served(Starlette(routes=routes), listener) as url,
            ):
                yield url, cluster


async def test_a_run_with_a_service_shows_its_curves_and_the_view_of_that_service(
    tmp_path: Path,
) -> None:
    add_steps(tmp_path, 1)
    follower = RunFollower(tmp_path, run="maze-run", planned=9)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(AsyncExitStack())
        url, cluster = await service.enter_async_context(a_service())
        async with cluster.trajectory() as t:
            ended = await t.run(["echo", "found"])
        link = await stack.enter_async_context(
            run_pages_beside(url, follower, service_token=SERVICE_TOKEN, token=TOKEN)
        )
        here = link.partition("?")[0]
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def asked(what: str, **more: Any) -> tuple[int, Any]:
            async with session.get(f"{here}/{what}", **more) as answer:
                is_json = answer.content_type == "application/json"
                return answer.status, await answer.json() if is_json else None

        assert (await asked("view.json"))[0] == 401
        assert (await asked("view.json", headers={"Authorization": f"Bearer {SERVICE_TOKEN}"}))[
            0
        ] == 401
        _, view = await asked("view.json", headers=headers)
        assert (view["run"], view["status"]["ended"]) == ("maze-run", 1)
        _, curves = await asked("run.json", headers=headers)
        assert curves["steps"] == [1]
        _, action = await asked(f"actions/{ended.action_id}", headers=headers)
        assert action["action"] == ended.action_id
        await service.aclose()
        status, gone = await asked("view.json", headers=headers)
        assert (status, "does not answer" in gone["error"]) == (502, True)


async def test_a_line_that_is_half_written_counts_when_it_is_whole(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path, run="run", planned=3)
    assert (await follower.curves()).steps == []
    add_steps(tmp_path, 1, 2)
    path = tmp_path / metrics.FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert (await follower.curves()).steps == [1]
    with path.open("ab") as file:
        file.write(whole[-5:])
    assert (await follower.curves()).steps == [1, 2]


async def test_a_resumed_run_shows_its_steps_once(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path, run="run", planned=3)
    add_steps(tmp_path, 1, 2, 3)
    assert (await follower.curves()).steps == [1, 2, 3]
    resumed = metrics.Metrics(tmp_path, after_step=1)
    resumed.close()
    add_steps(tmp_path, 2)
    found = await follower.curves()
    assert found.steps == [1, 2]
    assert found.series["reward/calc"] == [0.1, 0.2]


async def test_what_a_page_gets_of_a_long_run_is_bounded(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path, run="run", planned=5000)
    add_steps(tmp_path, *range(1, 2 * MOST_POINTS + 2))
    for step in range(1, MOST_TRANSCRIPTS + 11):
        add_attempt(tmp_path, step, said="x" * 100_000)
    found, kept = await asyncio.gather(follower.curves(), follower.transcripts())
    assert len(found.steps) <= MOST_POINTS
    assert found.steps[-1] == 2 * MOST_POINTS + 1
    assert [one.step for one in kept] == list(range(MOST_TRANSCRIPTS + 10, 10, -1))
    assert max(len(one.conversations[0][1].text) for one in kept) == 20_000


async def test_evaluations_are_curves_beside_the_steps(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path, run="run", planned=3)
    add_steps(tmp_path, 1, 2)
    lines = [msgspec.json.encode(an_exam(step, success)) for step, success in ((0, 0.1), (2, 0.6))]
    (tmp_path / exams.FILE_NAME).write_bytes(b"\n".join([*lines, b""]))
    found = await follower.curves()
    assert found.steps == [0, 1, 2]
    assert found.series["eval/calc"] == [0.1, None, 0.6]
    assert found.series["reward/calc"] == [None, 0.1, 0.2]
