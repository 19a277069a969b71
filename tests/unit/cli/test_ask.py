"""`artangram status`, `explain` and `run --url` against a service that is there."""

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from artangram.cli import client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.server import serving
from artangram.testing.fakes import a_setup, fake_cluster

TOKEN = "a token of this test"


@asynccontextmanager
async def a_busy_service() -> AsyncIterator[list[str]]:
    """One core, an action that holds it and one that waits; gives the options to reach it.

    No preemption: a busy machine would take long enough for it.
    """
    async with (
        fake_cluster(a_setup(cores=1, policy="fcfs")) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
        client.trajectory(id="first") as first,
        client.trajectory(id="second") as second,
    ):
        holding = asyncio.create_task(first.run(["sleep", "1000"]))
        while behind.orchestrator.status().running == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        waiting = asyncio.create_task(second.run(["true"], kind="quick"))
        while behind.orchestrator.status().queued == 0:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.01)
        yield ["--url", url, "--token", TOKEN]
        holding.cancel()
        assert (await waiting).ok


async def test_snapshots_are_listed_and_forgotten(run):
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
        client.trajectory() as t,
    ):
        reach = ["--url", url, "--token", TOKEN]
        for name in ("deps", "more"):
            await t.snapshot(name)
        told = await asyncio.to_thread(run, "snapshots", *reach)
        assert "on demand" in told.out
        told = await asyncio.to_thread(run, "snapshots", "--forget", "deps", *reach, "--json", "-")
        assert [one["name"] for one in told.json] == ["more"]
        told = await asyncio.to_thread(run, "snapshots", "--forget", "deps", *reach)
        assert (told.code, "there is no 'deps'" in told.err) == (2, True)


async def test_status_names_who_waits_and_explain_says_why(run):
    async with a_busy_service() as reach:
        told = await asyncio.to_thread(run, "status", *reach, "--json", "-")
        (waiting,) = told.json["waiting"]
        assert (told.json["running"], waiting["trajectory"], waiting["kind"]) == (
            1,
            "second",
            "quick",
        )
        assert "waiting longest" in told.err
        why = await asyncio.to_thread(run, "explain", waiting["action"], *reach)
        assert (why.code, why.err) == (0, "")
        assert "starts when" in why.out
        data = await asyncio.to_thread(run, "explain", waiting["action"], *reach, "--json", "-")
        (hindrance,) = json.loads(data.out)["hindrances"]
        assert (hindrance["resource"], hindrance["needed"], hindrance["free"]) == ("cpu", 1, 0)


async def test_names_cannot_command_the_terminal(run):
    evil = "a\x1b]0;owned\x07\x1b[2Jb\x9bc\u202ed"
    async with (
        fake_cluster(a_setup(cores=1)) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        behind.trajectory(id=evil, job=evil) as first,
        behind.trajectory(id=f"{evil} 2") as second,
    ):
        reach = ["--url", url, "--token", TOKEN]
        holding = asyncio.create_task(first.run(["sleep", "1000"]))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(second.run(["true"], kind=evil))
        while behind.orchestrator.status().queued == 0:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)
        told = await asyncio.to_thread(run, "status", *reach)
        why = await asyncio.to_thread(run, "explain", evil, *reach)
        assert "a\\x1b]0;owned\\x07\\x1b[2Jb\\x9bc\\u202ed" in told.out
        assert why.code == 2
        for text in (told.out, told.err, why.out, why.err):
            assert not set(text) & set("\x1b\x07\x9b\u202e")
        holding.cancel()
        assert (await waiting).ok


async def test_a_node_is_drained_and_takes_trajectories_again(run):
    async with a_busy_service() as reach:
        told = await asyncio.to_thread(run, "drain", "cpu-0", *reach)
        assert (told.code, told.err) == (0, "")
        assert told.out.startswith("cpu-0 gets no new trajectories, and leaves when")
        told = await asyncio.to_thread(run, "status", *reach)
        (line,) = (line for line in told.out.splitlines() if line.lstrip().startswith("cpu-0"))
        node, state, running, *rest = line.split()
        assert (node, state, running) == ("cpu-0", "draining", "1")
        assert "1 of 1" in line
        assert rest[-1] == "-"
        told = await asyncio.to_thread(run, "drain", "cpu-0", "--undo", *reach)
        assert (told.code, told.out) == (0, "cpu-0 takes new trajectories again.\n")
        told = await asyncio.to_thread(run, "drain", "cpu-7", *reach)
        assert told.code == 2
        assert told.err == "error: node: this cluster has no 'cpu-7'; name one of: cpu-0\n"
        wrong = [*reach[:2], "--token", "another"]
        told = await asyncio.to_thread(run, "drain", "cpu-0", *wrong)
        assert told.code == 2
        assert "send the token" in told.err


async def test_what_a_service_refuses_is_one_line(run):
    async with a_busy_service() as reach:
        unknown = await asyncio.to_thread(run, "explain", "nobody", *reach)
        assert unknown.err.startswith("error: action: 'nobody' is neither waiting nor running")
        stranger = await asyncio.to_thread(run, "status", *reach[:2], "--token", "wrong")
        assert stranger.err.startswith("error: service: send the token")
        greedy = await asyncio.to_thread(run, "run", *reach, "--cpu", "2", "true")
        assert (unknown.code, stranger.code, greedy.code) == (2, 2, 1)
        assert greedy.err.startswith("refused: needs.cpu: asks for at least 2, which can never fit")


@asynccontextmanager
async def a_stranger(says: bytes | None) -> AsyncIterator[str]:
    """Something else at an address: it answers every request so, or not at all."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if says is not None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(says), says))
        await reader.read()  # Until the caller hangs up.
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname())


@pytest.mark.parametrize("verb", [["status"], ["explain", "x"], ["run", "true"]])
async def test_who_never_answers_is_given_up(run, verb, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.5)
    async with a_stranger(None) as url:
        said = await asyncio.to_thread(run, *verb, "--url", url)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: url: {url} has not answered for")


async def test_who_answers_otherwise_is_no_cluster(run):
    async with a_stranger(b"<html>hello</html>") as url:
        said = await asyncio.to_thread(run, "status", "--url", url)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: url: {url} answers, but it is not an Artangram service")


async def test_run_tells_programs_and_people_how_a_command_ended(run):
    async with (
        fake_cluster(a_setup(cores=1)) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
    ):
        reach = ["--url", url, "--token", TOKEN]
        told = await asyncio.to_thread(run, "run", *reach, "--json", "-", "--", "true")
        late = await asyncio.to_thread(
            run, "run", *reach, "--timeout", "0.1", "--", "sleep", "1000"
        )
    assert (told.code, told.json["outcome"], told.json["exit_code"]) == (0, "succeeded", 0)
    assert (told.json["stdout"], told.err) == ("", "")
    assert late.err.startswith("timed_out: it ran longer than 0.1 s")


async def test_use_by_job_is_priced_and_written_as_csv(run, tmp_path):
    path = tmp_path / "use.csv"
    async with (
        fake_cluster(a_setup(cores=2)) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
    ):
        async with behind.trajectory(job="=red", task="swe") as t:
            await t.run(["sleep", "0.2"])
        reach = ["--url", url, "--token", TOKEN, "--price", "cpu=3600", "--csv", str(path)]
        told = await asyncio.to_thread(run, "use", *reach, "--json", "-")
        wrong = await asyncio.to_thread(run, "use", *reach, "--price", "cpu=much")
    (row,) = told.json["rows"]
    assert (row["job"], row["task"], row["actions"]) == ("=red", "swe", 1)
    assert "a pod holds the cores of its widest action" in told.err
    (line,) = csv.DictReader(path.read_text().splitlines())
    assert (line["job"], line["core_s"]) == ("'=red", str(row["core_s"]))
    assert float(line["cost"]) == pytest.approx(row["core_s"])
    assert (wrong.code, wrong.err.split(";")[0]) == (2, "error: price: 'cpu=much' has no amount")


async def test_doctor_examines_every_node_and_fails_when_one_is_wrong(run, monkeypatch):
    async with a_busy_service() as reach:
        told = await asyncio.to_thread(run, "doctor", "--cluster", *reach, "--json", "-")
        (node,) = told.json["nodes"]
        wrong = [one for one in node["findings"] if one["is_wrong"]]
        assert told.code == bool(wrong)
        assert node["examination"]["providers"] == ["fake"]
        assert node["mb_per_s"] > 0

        monkeypatch.setattr("artangram.orchestrator.diagnosis.LEAST_MEMORY_MB", 1 << 40)
        shown = await asyncio.to_thread(run, "doctor", "--cluster", *reach)
        assert shown.code == 1
        assert "MB of its memory are free" in shown.out
        assert "to do: offer less with --memory-mb" in shown.out


async def test_doctor_of_a_cluster_wants_its_address(run):
    told = await asyncio.to_thread(run, "doctor", "--cluster")
    assert told.code == 2
    assert "--url" in told.err
