"""`status --watch`, `top`, `history`, `cancel`, `close` and the list of verbs."""

import asyncio
import resource
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from artangram.cli.summaries import SUMMARIES
from artangram.cli.verbs import VERBS
from artangram.core.scheduling.action import Outcome
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.server import serving
from artangram.testing.fakes import a_setup, fake_cluster

TOKEN = "a token of this test"
MAIN = [sys.executable, "-c", "from artangram.cli import main; main()"]


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - no event for it
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_says_what_each_verb_says_itself(verb):
    found = getattr(import_module(f"artangram.cli.{VERBS[verb]}"), verb)
    said = found.info.help if isinstance(found, typer.Typer) else found.__doc__
    assert SUMMARIES[verb] == " ".join(said.split("\n\n")[0].split())
    assert list(SUMMARIES) == list(VERBS)


def test_the_list_of_verbs_is_there_at_once():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*MAIN, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert all(f"  {verb} " in done.stdout for verb in VERBS)
    # Of the processor, which a busy machine does not lengthen much; alone it is the whole time.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
    bare = subprocess.run(MAIN, capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stdout) == (2, done.stdout)


async def test_status_says_what_is_in_use_what_runs_and_what_waits_for_what(run):
    setup = a_setup(cores=2, memory_mb=4096, policy="fcfs")
    async with fake_cluster(setup) as behind, serving(behind.orchestrator, token=TOKEN) as url:
        reach = ["--url", url, "--token", TOKEN]
        async with (
            behind.trajectory(job="red", memory_mb=1000) as first,
            behind.trajectory(job="blue", memory_mb=500) as second,
        ):
            holding = asyncio.create_task(first.run(["sleep", "1000"], cpu=2, kind="long"))
            await until(lambda: behind.orchestrator.status().running)
            waiting = asyncio.create_task(second.run(["true"], kind="quick"))
            await until(lambda: behind.orchestrator.status().waiting)
            told = await asyncio.to_thread(run, "status", *reach, "--json", "-")
            pools = {one["resource"]: (one["used"], one["capacity"]) for one in told.json["pools"]}
            assert pools["cpu"] == (2, 2)
            assert pools["memory"][1] == 4096
            jobs = {one["job"]: one for one in told.json["jobs"]}
            assert (jobs["red"]["running"], jobs["red"]["cores"]) == (1, 2)
            assert (jobs["blue"]["queued"], jobs["blue"]["running"]) == (1, 0)
            (longest,) = told.json["longest"]
            assert (longest["kind"], longest["where"], longest["units"]) == ("long", "cpu-0", 2)
            (last,) = told.json["waiting"]
            assert last["reason"] == jobs["blue"]["waits_for"] != ""
            assert last["reason"] in told.err
            cancelled = await asyncio.to_thread(run, "cancel", longest["action"], *reach)
            assert cancelled.out == f"{longest['action']} is being stopped.\n"
            assert (await holding).outcome is Outcome.CANCELLED
            assert (await waiting).ok
            gone = await asyncio.to_thread(run, "cancel", longest["action"], *reach)
            assert "is neither waiting nor running" in gone.err
            closed = await asyncio.to_thread(run, "close", "red", *reach)
            assert closed.out == "Closed 1 trajectories of red.\n"
            again = await asyncio.to_thread(run, "close", "red", *reach)
            assert again.err == ("error: job: 'red' has no open trajectory; name one of: blue\n")


@pytest.mark.parametrize("is_lasting", [False, True])
async def test_history_tells_an_action_from_beginning_to_end(run, tmp_path, is_lasting):
    journal, past = await open_journal(tmp_path / "journal.sqlite") if is_lasting else (None, None)
    async with (
        fake_cluster(a_setup(cores=2), journal=journal, past=past) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
    ):
        reach = ["--url", url, "--token", TOKEN]
        async with behind.trajectory(job="red", task="swe") as t:
            result = await t.run(["false"], kind="tests")
            for _ in range(20):
                await t.run(["true"])
        if is_lasting:  # What is no longer remembered is in the journal.
            behind.orchestrator.ledger.recent.clear()
        told = await asyncio.to_thread(run, "history", result.action_id, *reach, "--json", "-")
        unknown = await asyncio.to_thread(run, "history", "nobody", *reach)
    if journal is not None:
        await journal.close()
    assert [one["what"] for one in told.json] == ["submitted", "started", "ended", "reported"]
    assert told.json[0]["detail"] == "tests, job red, task swe; needs 1 cpu"
    assert "attempt 1 on cpu-0, cores " in told.json[1]["detail"]
    assert told.json[3]["detail"].startswith("failed")
    assert "started" in told.err
    assert unknown.err.startswith("error: action: 'nobody' is not known;")


async def test_watching_goes_on_until_it_is_interrupted():
    async with fake_cluster() as behind, serving(behind.orchestrator, token=TOKEN) as url:
        argv = [*MAIN, "status", "--watch", "--every", "0.2", "--url", url, "--token", TOKEN]
        watching = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
        assert watching.stdout is not None
        seen = 0
        async for line in watching.stdout:
            seen += b"up for" in line
            if seen == 3:
                break
        watching.send_signal(2)
        await watching.communicate()
    assert watching.returncode == 0
