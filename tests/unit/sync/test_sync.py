"""The blocking client: several threads, a running loop, interrupts, ends and failures."""

import asyncio
import inspect
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

import artangram
from artangram import sync
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.sandbox.fake import FakeProvider
from artangram.sync.client import SyncApi, SyncClient, SyncTrajectory
from artangram.sync.thread import LoopThread


@pytest.fixture
def client() -> Iterator[SyncClient]:
    with sync.local(provider=FakeProvider(), cores=2) as found:
        yield found
    assert "artangram.sync" not in {thread.name for thread in threading.enumerate()}


def test_a_trajectory_keeps_its_files_between_runs(client: SyncClient) -> None:
    with client.trajectory(task="demo") as t:
        t.write("greeting", "hello")
        assert t.run(["cat", "greeting"], cpu=artangram.between(1, 2)).stdout == "hello"
        assert t.read("greeting") == b"hello"
        assert t.queued_s >= 0
    assert client.status().ended >= 1


def test_a_stream_gives_output_and_then_the_result(client: SyncClient) -> None:
    with client.trajectory() as t:
        *printed, result = t.stream(["echo", "hello"])
    assert b"".join(p.data for p in printed if isinstance(p, artangram.Output)) == b"hello\n"
    assert isinstance(result, artangram.ActionResult)
    assert result.ok


def test_snapshots_are_listed_and_forgotten(client: SyncClient) -> None:
    with client.trajectory() as t:
        t.write("x", b"1")
        t.snapshot("deps", keep_s=60)
    (listed,) = client.snapshots()
    assert (listed.name, listed.keep_s) == ("deps", 60.0)
    with client.trajectory(source=artangram.Snapshot(name="deps")) as t:
        assert t.read("x") == b"1"
    client.forget("deps")
    assert client.snapshots() == ()


def test_a_function_returns_its_value(client: SyncClient) -> None:
    assert client.function(math.sqrt, timeout_s=60.0)(25.0) == 5.0


def test_errors_are_raised_as_the_async_client_raises_them(client: SyncClient) -> None:
    with client.trajectory() as t, pytest.raises(artangram.BadInput, match=r"^timeout_s: "):
        t.run(["true"], timeout_s=math.nan)
    with pytest.raises(artangram.BadInput, match=r"^memory: is not an option of a run"):
        t.run(["true"], memory=64)  # type: ignore[call-arg]
    with pytest.raises(KeyError):
        client.explain("unheard-of")


def test_several_threads_use_one_client(client: SyncClient) -> None:
    def hello(number: int) -> str:
        with client.trajectory() as t:
            return t.run(["echo", str(number)]).stdout.strip()

    with ThreadPoolExecutor(max_workers=8) as pool:
        assert list(pool.map(hello, range(32))) == [str(number) for number in range(32)]


def test_several_threads_use_one_trajectory(client: SyncClient) -> None:
    with client.trajectory() as t, ThreadPoolExecutor(max_workers=4) as pool:
        found = pool.map(lambda n: t.run(["echo", str(n)]).stdout.strip(), range(8))
        assert list(found) == [str(number) for number in range(8)]


async def test_a_thread_with_a_running_loop_may_use_it(client: SyncClient) -> None:
    assert asyncio.get_running_loop().is_running()
    with client.trajectory() as t:
        assert t.run(["echo", "notebook"]).stdout == "notebook\n"


def test_an_exception_in_the_block_closes_the_client_and_passes() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        sync.local(provider=FakeProvider()) as client,
        client.trajectory() as t,
    ):
        1 / 0  # noqa: B018
    with pytest.raises(artangram.Refused, match="closed; open another one"):
        t.run(["true"])
    client.close()
    assert t.queued_s == 0


def test_what_cannot_be_opened_raises_and_leaves_no_thread() -> None:
    with pytest.raises(artangram.BadInput, match=r"^cores: "):
        sync.local(cores=0)
    assert "artangram.sync" not in {thread.name for thread in threading.enumerate()}


def test_calls_under_way_are_refused_when_the_client_closes() -> None:
    def sleep(client: SyncClient) -> None:
        with client.trajectory() as t:
            t.run(["sleep", "1000"])

    def stream(client: SyncClient) -> None:
        with client.trajectory() as t:
            list(t.stream(["sleep", "1000"]))

    with ThreadPoolExecutor() as pool:
        with sync.local(provider=FakeProvider(), cores=2) as client:
            sleeping = [pool.submit(one, client) for one in (sleep, stream)]
            while client.status().running < 2:
                time.sleep(0.01)
        for one in sleeping:
            with pytest.raises(artangram.Refused, match="closed during the call"):
                one.result()


def test_an_interrupt_cancels_the_call_and_keeps_the_client(client: SyncClient) -> None:
    def interrupt() -> None:
        while client.status().running == 0:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # The trajectory runs one command at a time: the second one starts when the first is gone.
    interrupter = threading.Thread(target=interrupt)
    with client.trajectory() as t:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            t.run(["sleep", "1000"])
        interrupter.join()
        assert t.run(["echo", "alive"]).stdout == "alive\n"


def test_an_interrupt_while_opening_ends_what_was_begun() -> None:
    ended = threading.Event()

    @asynccontextmanager
    async def slow():  # type: ignore[no-untyped-def]
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(1000)
            yield
        finally:
            ended.set()

    opening: Callable[[], AbstractAsyncContextManager[Client]] = slow
    with pytest.raises(KeyboardInterrupt):
        LoopThread(opening)
    assert ended.is_set()


def test_what_fails_while_closing_is_raised_by_close() -> None:
    @asynccontextmanager
    async def failing():  # type: ignore[no-untyped-def]
        yield None
        raise OSError("the disk is full")

    thread = LoopThread(failing)
    with pytest.raises(OSError, match="disk is full"):
        thread.close()
    thread.close()


def test_a_forked_process_is_refused(client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(artangram.BadInput, match="opened in another process"):
        client.status()
    client.close()
    monkeypatch.undo()
    assert client.status().running == 0


@pytest.mark.parametrize(
    ("blocking", "original"),
    [
        (sync.local, artangram.local),
        (sync.connect, artangram.connect),
        *(
            (getattr(mine, name), getattr(its, name))
            for mine, its in (
                (SyncClient, Client),
                (SyncTrajectory, TrajectoryHandle),
                (SyncApi, artangram.Api),
            )
            for name in vars(its)
            if not name.startswith("_") and callable(getattr(its, name))
        ),
    ],
    ids=lambda one: one.__qualname__,
)
def test_signatures_are_those_of_the_async_client(
    blocking: Callable[..., object], original: Callable[..., object]
) -> None:
    def of(function: Callable[..., object]) -> list[tuple[str, object, object]]:
        given = inspect.signature(function).parameters.values()
        return [(one.name, one.kind, one.default) for one in given]

    assert of(blocking) == of(original)
