"""What an action prints reaches its caller while it runs, through the whole cluster."""

from __future__ import annotations

import contextlib

import pytest

from artangram.core.ids import TrajectoryId
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.records import ActionResult, Opening
from artangram.sandbox import NotCapable, Output

T = TrajectoryId("t")


def a_request(script: str) -> RunRequest:
    return RunRequest(trajectory=T, argv=("sh", "-c", script), kind="talk", timeout_s=20)


async def test_output_comes_while_the_program_waits_for_its_caller() -> None:
    """The program goes on only when the caller has seen its first line."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            orchestrator, _ = await stack.enter_async_context(running())
        except NotCapable as problem:
            pytest.skip(str(problem))
        client = Embedded(orchestrator)
        await client.open(Opening(trajectory=T, memory_mb=64))
        script = "echo first; while ! test -e go; do sleep 0.01; done; echo second >&2"
        seen: list[tuple[str, bytes]] = []
        async for piece in client.stream(a_request(script)):
            if isinstance(piece, Output):
                seen.append((piece.channel, piece.data))
                (node,) = orchestrator.nodes.values()
                await node.write(T, "go", data=b"")
            else:
                result: ActionResult = piece
        assert seen == [("stdout", b"first\n"), ("stderr", b"second\n")]
        assert (result.ok, result.stdout, result.stderr) == (True, "first\n", "second\n")


async def test_who_leaves_early_ends_the_action() -> None:
    async with contextlib.AsyncExitStack() as stack:
        try:
            orchestrator, _ = await stack.enter_async_context(running())
        except NotCapable as problem:
            pytest.skip(str(problem))
        client = Embedded(orchestrator)
        await client.open(Opening(trajectory=T, memory_mb=64))
        pieces = client.stream(a_request("echo first; sleep 1000"))
        assert isinstance(await anext(pieces), Output)
        await pieces.aclose()
        await orchestrator.drain(10)
        assert orchestrator.status().running == 0
