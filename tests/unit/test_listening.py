"""The socket that services are reached by."""

import asyncio
import socket

import pytest

from artangram.aio import listening
from artangram.core.errors import BadInput


async def test_small_answers_do_not_wait_for_more() -> None:
    delayed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = writer.get_extra_info("socket")
        delayed.set_result(not taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listening("127.0.0.1", 0) as ear:
        async with await asyncio.start_server(meet, sock=ear):
            _, writer = await asyncio.open_connection(*ear.getsockname())
            assert not await delayed
            writer.close()
            await writer.wait_closed()


def test_callers_may_come_before_anybody_serves() -> None:
    with listening("127.0.0.1", 0) as ear, socket.create_connection(ear.getsockname()) as caller:
        assert caller.getpeername() == ear.getsockname()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "no such host"])
@pytest.mark.parametrize("port", [70_000, -1])
def test_an_address_that_cannot_be_had_is_bad_input(host: str, port: int) -> None:
    with pytest.raises(BadInput, match=f"address: {host} port {port}: "):
        listening(host, port)
