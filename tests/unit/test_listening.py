"""The socket that services are reached by."""

import asyncio
import socket

import pytest

from artangram.aio import listening, served
from artangram.core.errors import BadInput


async def test_small_answers_do_not_wait_for_more() -> None:
    delayed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = writer.get_extra_info("socket")
        delayed.set_result(not taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listening("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(meet, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert not await delayed
            writer.close()
            await writer.wait_closed()


async def nobody(scope: object, receive: object, send: object) -> None:
    """An application that is never asked."""


async def test_who_stops_serving_is_heard_out_even_when_cancelled_again() -> None:
    listener, is_serving = listening("127.0.0.1", 0), asyncio.Event()
    address = listener.getsockname()

    async def serve() -> None:
        async with served(nobody, listener):
            is_serving.set()
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await is_serving.wait()
    for _ in range(2):
        serving.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await serving
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


def test_callers_may_come_before_anybody_serves() -> None:
    with (
        listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()) as caller,
    ):
        assert caller.getpeername() == listener.getsockname()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "no such host"])
@pytest.mark.parametrize("port", [70_000, -1])
def test_an_address_that_cannot_be_had_is_bad_input(host: str, port: int) -> None:
    with pytest.raises(BadInput, match=f"address: {host} port {port}: "):
        listening(host, port)
