"""What a client says of a house that is not there, or is none."""

import socket
from collections.abc import Iterator

import pytest

from artangram.core.errors import InfraFailed
from artangram.orchestrator.connect import connect
from artangram.orchestrator.records import Away

TOKEN = "a token of this test"


@pytest.fixture
def nowhere() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody else gets it, and nobody listens.
        yield "http://{}:{}".format(*taken.getsockname())


async def test_a_house_that_is_not_there_is_named_with_what_to_do(nowhere: str) -> None:
    async with connect(nowhere, token=TOKEN) as house:
        with pytest.raises(Away, match=f"{nowhere} does not answer: .*; start it with `artangram"):
            await house.status()
        with pytest.raises(Away):
            await house.trajectory().__aenter__()
        with pytest.raises(Away):
            async for _ in house.trajectory().stream(["true"]):
                pass


async def test_no_answer_is_a_failure_of_infrastructure_and_no_file_error(nowhere: str) -> None:
    async with connect(nowhere, token=TOKEN) as house:
        with pytest.raises(InfraFailed) as caught:
            await house.trajectory().read("x")
    assert not isinstance(caught.value, OSError)
