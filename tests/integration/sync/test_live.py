"""The blocking client with real sandboxes, here and behind HTTP."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import artangram
from artangram import ActionResult, Output, sync
from artangram.orchestrator.server import serving
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe
from artangram.testing.fakes import fake_cluster

TOKEN = "of-this-test"


@contextmanager
def a_service() -> Iterator[str]:
    """The address of a cluster with fake sandboxes, in a thread of its own."""
    ready, url = threading.Event(), list[str]()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with (
            fake_cluster() as cluster,
            serving(cluster.orchestrator, token=TOKEN) as address,
        ):
            url.append(address)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield url[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def test_a_service_is_used_without_async() -> None:
    with (
        a_service() as url,
        sync.connect(url, token=TOKEN) as client,
        client.trajectory(task="demo") as t,
    ):
        t.write("a", "hello")
        assert t.run(["cat", "a"]).stdout == "hello"
        *_, result = t.stream(["echo", "streamed"])
        assert isinstance(result, ActionResult)
        assert result.stdout == "streamed\n"
        with pytest.raises(artangram.BadInput, match="argv"):
            t.run([])


def test_a_service_that_is_away_is_unreachable() -> None:
    said = "does not answer"
    with (
        sync.connect("http://127.0.0.1:9", token=TOKEN) as client,
        pytest.raises(artangram.Unreachable, match=said),
    ):
        client.status()


@pytest.mark.skipif(probe().level < IsolationLevel.NAMESPACES, reason="needs namespaces")
def test_output_arrives_while_the_command_runs_and_leaving_stops_it() -> None:
    with sync.local() as client, client.trajectory() as t:
        pieces = t.stream(["sh", "-c", "echo begun; sleep 1000"])
        first = next(pieces)
        assert isinstance(first, Output)
        assert first.data == b"begun\n"
        pieces.close()
        assert t.run(["echo", "free again"], timeout_s=60.0).stdout == "free again\n"
