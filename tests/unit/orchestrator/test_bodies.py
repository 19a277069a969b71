"""How long a service waits for what a caller says, on virtual time: any server drives it so."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.server import BODY_SILENCE_S, application
from artangram.testing.fakes import FakeCluster, fake_cluster

pytestmark = pytest.mark.looptime


class Caller:
    """One request: its pieces come after pauses; when they are out, nothing comes any more."""

    def __init__(
        self, client: FakeCluster, verb: str, *pieces: bytes, pause_s: float = 0.0
    ) -> None:
        self._application = application(client.orchestrator, token=None)
        self._verb = verb
        self._pieces = list(pieces)
        self._pause_s = pause_s
        self._told: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if not self._pieces:
            await asyncio.Event().wait()
        await asyncio.sleep(self._pause_s)
        body = self._pieces.pop(0)
        return {"type": "http.request", "body": body, "more_body": body != b""}

    async def send(self, message: Any) -> None:
        self._told.append(message)

    async def answer(self) -> tuple[int, dict[bytes, bytes]]:
        path = f"/v1/trajectories/t/{self._verb}"
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        async with asyncio.timeout(10_000):
            await self._application(scope, self.receive, self.send)
        return self._told[0]["status"], dict(self._told[0]["headers"])


@pytest.fixture
async def client() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as client, client.trajectory(id="t"):
        yield client


def a_body(*argv: str) -> bytes:
    return msgspec.json.encode(RunRequest(trajectory="t", argv=argv, kind="x"))


async def test_who_stops_in_the_middle_of_a_body_is_told_and_left(client: FakeCluster) -> None:
    began_at = asyncio.get_running_loop().time()
    status, headers = await Caller(client, "run", a_body("true")[:9]).answer()
    assert (status, headers[b"connection"]) == (408, b"close")
    assert asyncio.get_running_loop().time() - began_at == pytest.approx(BODY_SILENCE_S)


async def test_a_body_may_come_slowly(client: FakeCluster) -> None:
    pieces = [a_body("true")[at : at + 9] for at in range(0, len(a_body("true")), 9)]
    assert len(pieces) > 3
    caller = Caller(client, "run", *pieces, b"", pause_s=0.9 * BODY_SILENCE_S)
    status, headers = await caller.answer()
    assert (status, b"connection" in headers) == (200, False)


@pytest.mark.parametrize("verb", ["run", "stream"])
async def test_an_answer_may_take_as_long_as_it_takes(client: FakeCluster, verb: str) -> None:
    began_at = asyncio.get_running_loop().time()
    status, _ = await Caller(client, verb, a_body("sleep", "1000"), b"").answer()
    assert status == 200
    assert asyncio.get_running_loop().time() - began_at >= 1000 > BODY_SILENCE_S
