"""What a client says of a cluster that is not there, or is none, and of what it cannot send."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.connect import connect
from artangram.orchestrator.records import Refused, Unreachable
from artangram.orchestrator.server import serving
from artangram.testing.fakes import fake_cluster

TOKEN = "a token of this test"


@pytest.fixture
def nowhere() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody else gets it, and nobody listens.
        yield "http://{}:{}".format(*taken.getsockname())


async def test_a_cluster_that_is_not_there_is_named_with_what_to_do(nowhere: str) -> None:
    async with connect(nowhere, token=TOKEN) as client:
        with pytest.raises(
            Unreachable, match=f"{nowhere} does not answer: .*; start it with `artangram"
        ):
            await client.status()
        with pytest.raises(Unreachable):
            await client.trajectory().__aenter__()
        with pytest.raises(Unreachable):
            async for _ in client.trajectory().stream(["true"]):
                pass


async def test_no_answer_is_a_failure_of_infrastructure_and_no_file_error(nowhere: str) -> None:
    async with connect(nowhere, token=TOKEN) as client:
        with pytest.raises(InfraFailed) as caught:
            await client.trajectory().read("x")
    assert not isinstance(caught.value, OSError)


async def test_a_cluster_that_was_left_says_so() -> None:
    async with fake_cluster() as behind, serving(behind.orchestrator, token=TOKEN) as url:
        async with connect(url, token=TOKEN) as client:
            t = client.trajectory()
        with pytest.raises(Refused, match="this client is closed; use it within"):
            await client.status()
        with pytest.raises(Refused, match="this client is closed; use it within"):
            await t.run(["true"])


@asynccontextmanager
async def a_stranger(says: bytes) -> AsyncIterator[str]:
    """Something else at an address, which answers every request so."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname())


def an_answer(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "says",
    [
        an_answer("200 OK", b"<html>hello</html>"),
        an_answer("200 OK", b"{}"),
        an_answer("404 Not Found", b"Not Found"),
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ],
)
async def test_who_answers_otherwise_is_no_cluster(says: bytes) -> None:
    async with a_stranger(says) as url, connect(url, token=TOKEN) as client:
        with pytest.raises(BadInput, match=f"url: {url} answers, but it is not an Art"):
            await client.status()


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable"])
async def test_a_cluster_behind_a_proxy_that_cannot_reach_it_is_away(status: str) -> None:
    async with (
        a_stranger(an_answer(status, b"<html>nginx</html>")) as url,
        connect(url, token=TOKEN) as client,
    ):
        with pytest.raises(Unreachable, match=f"{url} does not answer: {status[:3]}"):
            await client.status()


async def test_half_a_character_is_refused_by_the_name_of_its_field() -> None:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
        client.trajectory() as t,
    ):
        await t.write("xy", b"kept")
        with pytest.raises(BadInput, match="path: is not valid Unicode"):
            await t.write("x\udcffy", b"lost")
        assert await t.read("xy") == b"kept", "an address leaves out what it cannot carry"
        with pytest.raises(BadInput, match="path: is not valid Unicode"):
            await t.read("x\udcffy")
        with pytest.raises(BadInput, match="argv: is not valid Unicode"):
            await t.run(["echo", "\udcff"])
        with pytest.raises(BadInput, match="trajectory: is not valid Unicode"):
            await client.trajectory(id="\udcff").__aenter__()
        with pytest.raises(BadInput, match="action_id: is not valid Unicode"):
            await client.explain("\udcff")


@pytest.mark.parametrize("is_connected", [False, True])
async def test_who_asks_in_another_event_loop_is_told_so_and_does_not_wait(
    is_connected: bool,
) -> None:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as connected,
    ):
        client = connected if is_connected else behind
        async with client.trajectory() as t:
            for ask in (
                lambda: t.run(["true"]),
                lambda: t.read("x"),
                lambda: client.trajectory().__aenter__(),
                lambda: client.call("judge", {}),
                client.status,
            ):
                with pytest.raises(BadInput, match="client: was opened in another event loop"):
                    await asyncio.to_thread(asyncio.run, asyncio.wait_for(ask(), 5))
            assert (await t.run(["true"])).ok


async def test_a_program_that_never_started_is_told_from_one_that_failed() -> None:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
        connect(url, token=TOKEN) as client,
    ):
        for each in (behind, client):
            async with each.trajectory() as t:
                missing, failed = await t.run(["no-such-program"]), await t.run(["false"])
            assert (missing.outcome, failed.outcome) == (Outcome.FAILED, Outcome.FAILED)
            assert missing.start_error == "No such file or directory"
            assert failed.start_error == ""
