"""The same cluster through HTTP: what a client gets, and what it does not get without the token."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import pytest
from busy_machine import PATIENCE_S
from process_support import few_open_files, most_open_files
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route

from artangram.aio import KEPT_S
from artangram.core.errors import BadInput
from artangram.core.ids import TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.managers.agent import AgentGone
from artangram.managers.local import LocalAgent
from artangram.managers.machine import allow_open_files
from artangram.managers.remote import connect as agent_at
from artangram.observe.journal import Entry, JournalFull
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import IDLE_S, connect
from artangram.orchestrator.httppolicy import MOST_OUTPUT_BYTES
from artangram.orchestrator.options import between
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.prometheus import MOST_KINDS, OTHER
from artangram.orchestrator.records import (
    ActionResult,
    Broken,
    Draining,
    Overloaded,
    Refused,
    Unreachable,
)
from artangram.orchestrator.server import application, serving
from artangram.orchestrator.stopping import until_told_to_stop
from artangram.sandbox import SandboxGone
from artangram.sandbox.fake import Console, FakeProvider
from artangram.sandbox.protocol import Output, Snapshot
from artangram.testing.fakes import NODE, FakeCluster, a_setup, fake_cluster

TOKEN = "a token of this test"


@asynccontextmanager
async def a_service(
    *, cores: int = 2, bounds: Bounds | None = None, policy: str = "elastic"
) -> AsyncIterator[tuple[FakeCluster, Client, str]]:
    async with (
        fake_cluster(a_setup(cores=cores, policy=policy), bounds=bounds) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
    ):
        yield behind, client, url


async def test_the_interface_is_the_same() -> None:
    async with a_service() as (behind, client, _), client.trajectory(id="a/b", task="swe") as t:
        await t.write("dir/x y", b"\x00\xff")
        assert await t.read("dir/x y") == b"\x00\xff"
        result = await t.run(["echo", "{units}"], cpu=between(1, 8), kind="swe/test")
        assert (result.stdout, result.exit_code, result.record.task) == ("2\n", 0, "swe")
        snapshot = await t.snapshot()
        async with client.trajectory(source=snapshot) as sibling:
            assert await sibling.read("dir/x y") == b"\x00\xff"
        assert (await client.status()).trajectories == 1
        assert behind.orchestrator.status().trajectories == 1
        await client.trajectory(job="team/red").__aenter__()
        await client.close_job("team/red")
        assert (await client.status()).trajectories == 1


async def metrics_of(url: str) -> dict[tuple[str, ...], float]:
    """Samples by name and labels."""
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics", headers=bearer) as found:
        assert found.status == 200
        text = await found.text()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_prometheus_reads_what_ended_and_what_is_in_use() -> None:
    async with a_service() as (behind, client, url), client.trajectory() as t:
        await t.run(["echo"], kind="tool")
        await t.run(["echo"], kind="tool")
        running = asyncio.ensure_future(t.run(["sleep", "1000"], kind="suite"))
        while behind.orchestrator.status().running == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        found = await metrics_of(url)
        running.cancel()
    assert found["artangram_actions_ended_total", "tool", "succeeded"] == 2
    assert found["artangram_action_completion_seconds_count", "tool"] == 2
    assert found["artangram_action_wait_seconds_sum", "tool"] >= 0
    assert found[("artangram_actions_running",)] == 1
    assert found["artangram_cores_used", NODE] == 1
    assert not [key for key in found if "suite" in key]


async def test_a_caller_who_makes_kinds_up_fills_no_memory() -> None:
    async with a_service() as (_, client, url), client.trajectory() as t:
        for number in range(MOST_KINDS + 5):
            await t.run(["echo"], kind=f"kind-{number}")
        found = await metrics_of(url)
    assert found["artangram_actions_ended_total", OTHER, "succeeded"] == 5
    assert len([key for key in found if key[0] == "artangram_core_seconds_total"]) == 101


async def test_a_client_knows_how_long_its_actions_have_waited() -> None:
    async with (
        a_service(cores=1) as (_, client, _),
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        await asyncio.gather(one.write("x", b""), other.write("x", b""))
        before_s = one.queued_s, other.queued_s
        results = await asyncio.gather(one.run(["sleep", "0.2"]), other.run(["sleep", "0.2"]))
        assert sum(result.wait_s for result in results) > 0.1
        for t, so_far_s, result in zip((one, other), before_s, results, strict=True):
            assert t.queued_s == pytest.approx(so_far_s + result.wait_s)
        with pytest.raises(FileNotFoundError):
            await one.read("nothing")
        settled_s = one.queued_s
        await asyncio.sleep(0.01)
        assert one.queued_s == settled_s
        await other.close()
        assert other.queued_s == pytest.approx(before_s[1] + results[1].wait_s)


async def test_trajectories_of_a_silent_client_are_closed_and_those_of_a_live_one_stay() -> None:
    bounds = Bounds(owner_silence_s=2.0)
    async with (
        fake_cluster(bounds=bounds) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN, beat_s=0.02) as alive,
        connect(url, token=TOKEN) as silent,
        alive.trajectory(id="kept"),
    ):
        await silent.trajectory(id="left").__aenter__()
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as raw:
            await raw.post(f"{url}/v1/trajectories", json={"trajectory": "unowned"})
        assert len(behind.orchestrator.ledger.trajectories) == 3
        async with asyncio.timeout(PATIENCE_S):
            while len(behind.orchestrator.ledger.trajectories) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert set(behind.orchestrator.ledger.trajectories) == {"kept"}
        assert (await alive.status()).abandoned == 2


async def test_a_client_hears_that_its_action_runs_before_it_ends() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN, beat_s=0.02) as client,
        client.trajectory() as t,
    ):
        await t.run(["true"])
        settled_s = t.queued_s
        running = asyncio.create_task(t.run(["sleep", "1000"]))
        async with asyncio.timeout(PATIENCE_S):
            while behind.orchestrator.ledger.num_running == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            # As long as it is not known to run, what was queued grows with every look.
            while (known_s := t.queued_s) != t.queued_s:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert known_s >= settled_s
        running.cancel()


async def test_errors_are_raised_as_they_are_at_home() -> None:
    async with a_service(bounds=Bounds(max_queued=0)) as (_, client, _), client.trajectory() as t:
        with pytest.raises(Overloaded, match="max_queued"):
            await t.run(["true"])
        with pytest.raises(BadInput, match="min 3 is above max 1") as caught:
            await t.run(["true"], cpu=between(3, 1))
        assert caught.value.fix == "swap them"
        with pytest.raises(KeyError):
            await client.explain("nobody")
    async with a_service() as (behind, client, _), client.trajectory() as t:
        await t.run(["true"])
        with pytest.raises(FileNotFoundError):
            await t.read("nothing")
        for sandbox in list(behind.provider.live):
            await sandbox.close()
        with pytest.raises(SandboxGone):
            await t.read("nothing")


async def test_without_the_token_nothing_is_told() -> None:
    async with a_service() as (_, _, url):
        async with connect(url) as stranger:
            with pytest.raises(Refused, match="send the token"):
                await stranger.status()
        async with connect(url, token="a wrong one") as stranger:
            with pytest.raises(Refused, match="send the token"):
                await stranger.trajectory().__aenter__()


async def test_who_hangs_up_takes_his_action_with_him() -> None:
    async with a_service(cores=1) as (behind, client, _), client.trajectory() as t:
        running = asyncio.create_task(t.run(["sleep", "1000"]))
        while behind.orchestrator.status().running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        running.cancel()
        result = await t.run(["true"])
        assert (result.ok, result.wait_s < 5) == (True, True)


async def test_who_asks_for_a_result_and_hangs_up_keeps_nothing_open() -> None:
    silence_s = 1.0
    async with (
        fake_cluster(bounds=Bounds(owner_silence_s=silence_s)) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as raw,
    ):
        ledger, about = behind.orchestrator.ledger, f"{url}/v1/trajectories"
        await raw.post(about, json={"trajectory": "t"})
        wanted = {"trajectory": "t", "argv": ["sleep", "1000"], "kind": "x", "key": "k"}
        running = asyncio.create_task(raw.post(f"{about}/t/run", json=wanted))
        while ledger.num_running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        (action,) = ledger.actions
        asking = asyncio.create_task(raw.get(f"{url}/v1/actions/{action}"))
        await raw.get(f"{url}/v1/status")
        running.cancel()
        await asyncio.sleep(1.5 * silence_s)
        assert set(ledger.trajectories) == {"t"}
        asking.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while ledger.trajectories:  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.02)


async def test_an_action_with_a_key_goes_on_and_answers_later() -> None:
    async with a_service() as (behind, client, _), client.trajectory() as t:
        running = asyncio.create_task(t.run(["sleep", "0.3"], key="k"))
        while behind.orchestrator.status().running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        running.cancel()
        result = await t.run(["sleep", "0.3"], key="k")
        assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 1)
        assert behind.orchestrator.ledger.num_ended == 1


async def test_a_client_that_computes_for_long_finds_its_connection() -> None:
    async with a_service() as (_, _, url):
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):  # The usual server would have closed it by then.
            await asyncio.wait_for(reader.read(), 5.5)
        writer.close()
        await writer.wait_closed()
    assert KEPT_S > 2 * IDLE_S


@asynccontextmanager
async def deaf_to_the_first_answer(url: str) -> AsyncIterator[str]:
    """A way to a service that breaks when the first answer comes, and never again."""
    there, is_deaf = urlsplit(url), True

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_deaf
        answers, questions = await asyncio.open_connection(there.hostname, there.port)
        asking = asyncio.create_task(pass_on(reader, questions))
        if is_deaf:
            is_deaf = False
            await answers.read(1)
        else:
            await pass_on(answers, writer)
        writer.close()
        questions.close()
        await asking

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def test_what_could_not_be_closed_is_closed_when_the_service_is_back() -> None:
    async with fake_cluster() as behind, AsyncExitStack() as stack:
        async with serving(behind.orchestrator, token=TOKEN) as url:
            client = connect(url, token=TOKEN, beat_s=0.05)
            client = await stack.enter_async_context(client)
            left, used = client.trajectory(), client.trajectory()
            await left.__aenter__()
            await used.__aenter__()
        with pytest.raises(Unreachable):
            await left.close()
        async with (
            serving(behind.orchestrator, token=TOKEN, port=urlsplit(url).port or 0),
            asyncio.timeout(PATIENCE_S),
        ):
            while left.id in behind.orchestrator.ledger.trajectories:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert (await used.run(["true"])).ok


async def test_a_closing_that_was_given_up_is_made_up_for() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with fake_cluster() as behind, AsyncExitStack() as stack:
        async with serving(behind.orchestrator, token=TOKEN) as url:
            client = connect(url, token=TOKEN, beat_s=0.05)
            client = await stack.enter_async_context(client)
            t = await client.trajectory().__aenter__()
        port = urlsplit(url).port or 0
        async with await asyncio.start_server(say_nothing, "127.0.0.1", port):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await t.close()
        async with (
            serving(behind.orchestrator, token=TOKEN, port=port),
            asyncio.timeout(PATIENCE_S),
        ):
            while t.id in behind.orchestrator.ledger.trajectories:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


class SlowToClose(LocalAgent):
    def __init__(self) -> None:
        super().__init__(NODE, FakeProvider(), now=time.time)
        self.asked, self.allowed = asyncio.Event(), asyncio.Event()

    async def close(self, trajectory: TrajectoryId) -> None:
        self.asked.set()
        await self.allowed.wait()
        await super().close(trajectory)


async def test_who_closes_it_himself_after_all_stops_no_signs_of_life() -> None:
    agent = SlowToClose()
    bounds = Bounds(owner_silence_s=1.0)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(agent.aclose)
        behind = await stack.enter_async_context(fake_cluster(agent=agent, bounds=bounds))
        async with serving(behind.orchestrator, token=TOKEN) as url:
            client = connect(url, token=TOKEN, beat_s=0.05)
            client = await stack.enter_async_context(client)
            left, used = [await client.trajectory().__aenter__() for _ in range(2)]
            await left.run(["true"])
        with pytest.raises(Unreachable):
            await left.close()
        async with serving(behind.orchestrator, token=TOKEN, port=urlsplit(url).port or 0):
            await agent.asked.wait()
            closing = asyncio.create_task(left.close())
            await asyncio.sleep(0.05)
            agent.allowed.set()
            await closing
            await asyncio.sleep(2.0)
            assert set(behind.orchestrator.ledger.trajectories) == {used.id}


async def test_what_could_not_be_closed_is_not_found_again_under_its_name() -> None:
    async with fake_cluster() as behind, AsyncExitStack() as stack:
        async with serving(behind.orchestrator, token=TOKEN) as url:
            client = await stack.enter_async_context(connect(url, token=TOKEN, beat_s=1000))
            t = client.trajectory()
            await t.__aenter__()
            await t.write("x", b"")
        with pytest.raises(Unreachable):
            await t.close()
        async with serving(behind.orchestrator, token=TOKEN, port=urlsplit(url).port or 0), t:
            assert (await t.run(["true"])).ok
            with pytest.raises(FileNotFoundError):
                await t.read("x")


async def test_an_opening_whose_answer_was_lost_may_be_asked_for_again() -> None:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        deaf_to_the_first_answer(url) as broken,
        connect(broken, token=TOKEN) as client,
    ):
        t = client.trajectory()
        with pytest.raises(Unreachable):
            await t.__aenter__()
        assert t.id in behind.orchestrator.ledger.trajectories
        async with t:
            assert (await t.run(["true"])).ok
            with pytest.raises(BadInput, match="already open"):
                await client.trajectory(id=t.id).__aenter__()


async def test_thousands_wait_at_once() -> None:
    allow_open_files()  # Here are both ends of each connection.
    # Under `elastic` the long command would give way to the short ones.
    service = a_service(cores=1, policy="fcfs")
    async with service as (behind, client, _), client.trajectory() as busy:
        holding = asyncio.create_task(busy.run(["sleep", "1000"]))
        boxes = [client.trajectory(memory_mb=8) for _ in range(100)]
        await asyncio.gather(*(box.__aenter__() for box in boxes))
        asked = [RunRequest(trajectory=box.id, argv=("true",), kind="x") for box in boxes] * 20
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(client.backend.run(request)) for request in asked]
            async with asyncio.timeout(PATIENCE_S):
                while behind.orchestrator.ledger.queue.total < len(asked):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            holding.cancel()
        assert {task.result().outcome for task in waiting} == {Outcome.SUCCEEDED}


async def test_the_description_is_that_of_the_service() -> None:
    async with a_service() as (behind, client, url), client.trajectory(id="t") as t:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/openapi.json") as got:
            found = await got.json()
        described = {(way.upper(), path) for path, ways in found["paths"].items() for way in ways}
        routes = [
            cast(Route, route) for route in application(behind.orchestrator, token=None).routes
        ]
        served = {
            (way, route.path.replace(":path}", "}"))
            for route in routes
            for way in (route.methods or set()) - {"HEAD"}
        }
        assert (found["openapi"], described) == ("3.1.0", served)
        assert "RunRequest" in found["components"]["schemas"]
        stream, headers = f"/v1/trajectories/{t.id}/stream", {"Authorization": f"Bearer {TOKEN}"}
        body = b'{"trajectory": "t", "argv": ["true"], "kind": "x"}'
        async with aiohttp.ClientSession(headers=headers) as session:
            for way, path, address in (
                ("get", "/metrics", "/metrics"),
                ("get", "/v1/status", "/v1/status"),
                ("post", "/v1/trajectories/{trajectory}/stream", stream),
            ):
                said = found["paths"][path][way]["responses"]
                async with session.request(way, url + address, data=body) as got:
                    assert list(said["200"]["content"]) == [got.content_type]
                assert "default" in said
        reading = found["paths"]["/v1/trajectories/{trajectory}/files"]["get"]["parameters"]
        assert [one["name"] for one in reading] == ["trajectory", "path", "max_bytes"]


_UP = """
import asyncio, sys
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from artangram.orchestrator.up import up

options = tuple(sys.argv[2:]) or ("--provider", "fake")
ready = partial(print, flush=True)
asyncio.run(up(Path(sys.argv[1]), on_ready=ready, port=0, cores=2, agent_options=options))
"""


_REAL = ("--provider", "strongest")


class Service:
    """`up` as a process of its own."""

    def __init__(self, state_dir: Path, *options: str) -> None:
        argv = [sys.executable, "-c", _UP, str(state_dir), *options]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.url = lines.readline().strip()
        self.token = (state_dir / "token").read_text().strip()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_S)


async def test_a_service_comes_back_after_a_kill_and_goes_on_request(tmp_path: Path) -> None:
    first = await asyncio.to_thread(Service, tmp_path)
    async with connect(first.url, token=first.token) as client:
        t = client.trajectory(id="t")
        await t.__aenter__()
        await t.write("x", b"kept")
        asking = asyncio.create_task(t.run(["sleep", "0.5"], key="k"))
        while (await client.status()).running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        await asyncio.to_thread(first.end, signal.SIGKILL)
        killed_at = time.time()
        with pytest.raises(Unreachable):
            await asking
    second = await asyncio.to_thread(Service, tmp_path)
    assert second.token == first.token
    async with connect(second.url, token=second.token) as client:
        t = client.trajectory(id="t")
        result = await t.run(["sleep", "0.5"], key="k")
        assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 1)
        assert result.record.submitted_at < killed_at, "it was run anew"
        assert await t.read("x") == b"kept"
    assert await asyncio.to_thread(second.end, signal.SIGTERM) == 0
    with pytest.raises(AgentGone):
        await agent_at(NODE, tmp_path / "agent.sock", now=time.time)


async def test_a_named_snapshot_survives_kill_and_end_of_a_service(tmp_path: Path) -> None:
    first = await asyncio.to_thread(Service, tmp_path, *_REAL)
    async with connect(first.url, token=first.token) as client:
        async with client.trajectory(memory_mb=64) as t:
            await t.write("x", b"kept")
            await t.snapshot("repo/deps")
            await t.snapshot()
        await asyncio.to_thread(first.end, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGTERM):
        service = await asyncio.to_thread(Service, tmp_path, *_REAL)
        async with connect(service.url, token=service.token) as client:
            assert "repo/deps" in {one.name for one in await client.snapshots()}
            source = Snapshot(name="repo/deps")
            async with client.trajectory(source=source, memory_mb=64) as t:
                assert await t.read("x") == b"kept"
        assert await asyncio.to_thread(service.end, number) == 0
    service = await asyncio.to_thread(Service, tmp_path, *_REAL)
    async with connect(service.url, token=service.token) as client:
        assert [one.name for one in await client.snapshots()] == ["repo/deps"]
        await client.forget("repo/deps")
        with pytest.raises(BadInput, match="snapshot: there is no 'repo/deps'"):
            await client.forget("repo/deps")
    assert await asyncio.to_thread(service.end, signal.SIGTERM) == 0


async def test_a_service_takes_as_many_callers_as_it_may(tmp_path: Path) -> None:
    with few_open_files() as most:
        service = await asyncio.to_thread(Service, tmp_path)
    allowed = most_open_files(service.process.pid)
    assert await asyncio.to_thread(service.end, signal.SIGTERM) == 0
    assert allowed == most


async def test_a_signal_drains_first() -> None:
    async with a_service() as (behind, client, _), client.trajectory() as t:
        stopping = asyncio.create_task(until_told_to_stop(behind.orchestrator, drain_s=5))
        running = asyncio.create_task(t.run(["sleep", "0.3"]))
        while behind.orchestrator.status().running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        with pytest.raises(Draining):
            await client.trajectory().__aenter__()
        await stopping
        assert (await running).ok


async def test_every_further_signal_is_more_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    async with a_service() as (behind, client, _), client.trajectory() as t:
        orchestrator = behind.orchestrator
        stopping = asyncio.create_task(until_told_to_stop(orchestrator, tell=told.append))
        running = asyncio.create_task(t.run(["sleep", "1000"]))
        while orchestrator.status().running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)
        assert told == [
            "Draining: 1 running and 0 waiting actions have 30 s to end; Ctrl-C again ends now."
        ]
        assert not stopping.done()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(stopping, PATIENCE_S)
        assert (told[1:], ended) == (["Ending now. A third Ctrl-C does not wait for anything."], [])
        os.kill(os.getpid(), signal.SIGINT)  # While its caller still closes what it opened.
        await asyncio.sleep(0.05)
        assert ended == [130]
        running.cancel()


class FailingJournal(MemoryJournal):
    is_full = False

    def append(self, entry: Entry, **more: Any) -> int:
        if self.is_full:
            more["then"](JournalFull("no room; free some and start again"))
            return 0
        return super().append(entry, **more)


async def test_a_service_without_a_journal_tells_its_callers_and_ends() -> None:
    journal = FailingJournal()
    async with (
        fake_cluster(journal=journal) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
    ):
        stopping = asyncio.create_task(until_told_to_stop(behind.orchestrator))
        t = await client.trajectory().__aenter__()
        running = asyncio.create_task(t.run(["sleep", "1000"]))
        await asyncio.sleep(0.1)
        journal.is_full = True
        with pytest.raises(Broken, match="no room"):
            await client.trajectory().__aenter__()
        with pytest.raises(Broken, match="no room"):
            await running
        with pytest.raises(Broken, match="no room"):
            await asyncio.wait_for(stopping, PATIENCE_S)


async def test_what_is_printed_comes_as_it_is_printed() -> None:
    async with a_service() as (_, client, _url), client.trajectory() as t:
        pieces = [piece async for piece in t.stream(["echo", "hello"], timeout_s=5.0)]
        *printed, result = pieces
        assert b"".join(p.data for p in printed if isinstance(p, Output)) == b"hello\n"
        assert isinstance(result, ActionResult)
        assert (result.exit_code, result.stdout) == (0, "hello\n")
        with pytest.raises(BadInput, match="not an option of a run"):
            await anext(t.stream(["true"], timout_s=1))
        await t.close()
        with pytest.raises(BadInput, match="is not open"):
            await anext(t.stream(["true"]))


async def test_a_stream_may_end_with_all_that_a_command_may_print() -> None:
    size = MOST_OUTPUT_BYTES // 2

    def flood(console: Console, argv: tuple[str, ...]) -> int:
        console.print(bytes(size))
        return 0

    async with (
        fake_cluster(programs={"flood": flood}) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
        client.trajectory() as t,
    ):
        stream = t.stream(["flood"], output_bytes=MOST_OUTPUT_BYTES)
        *_, result = [piece async for piece in stream]
        assert isinstance(result, ActionResult)
        assert len(result.stdout) == size
