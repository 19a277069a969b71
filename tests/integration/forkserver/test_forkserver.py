"""The fork server with real processes: they start with what was imported, and end once."""

# ruff: noqa: ASYNC110, ASYNC220 - the kernel sets no event, and nothing else runs

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from busy_machine import PATIENCE_S
from process_support import environ, is_alive

from artangram.core.errors import InfraFailed
from artangram.forkserver.client import ForkedProcess, ForkServer

TARGET = "integration.forkserver.targets:obey"
LIGHT = "colorsys"
"""A module that nothing here imports by itself."""


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[ForkServer]:
    server = ForkServer(TARGET, **options)
    try:
        yield server
    finally:
        await server.aclose()


async def spawned(server: ForkServer) -> ForkedProcess:
    """A process that has greeted."""
    process = server.spawn()
    assert await answer(process) == str(process.number)
    return process


async def answer(process: ForkedProcess, word: str = "") -> str:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S):
        await loop.sock_sendall(process.connection, word.encode())
        return (await loop.sock_recv(process.connection, 100)).decode().strip()


async def ended(process: ForkedProcess) -> int:
    async with asyncio.timeout(PATIENCE_S):
        status = await asyncio.shield(process.ended)
    process.connection.close()
    return status


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(("word", "status"), [("exit", 7), ("raise", 1)])
async def test_an_end_is_reported_with_its_exit_code(word: str, status: int) -> None:
    async with serving() as server:
        process = await spawned(server)
        assert await process.started() != os.getpid()
        await answer(process, word)
        assert await ended(process) == status


async def test_a_killed_process_is_gone_when_its_end_is_reported_and_so_is_its_child() -> None:
    async with serving() as server:
        process = await spawned(server)
        child = int(await answer(process, "child"))
        process.kill()
        assert await ended(process) == -signal.SIGKILL
        assert not is_alive(await process.started())
        await until(lambda: not is_alive(child))
        process.kill()  # A second time does nothing.


async def test_what_a_process_started_ends_when_it_exits() -> None:
    async with serving() as server:
        process = await spawned(server)
        child = int(await answer(process, "child"))
        await answer(process, "exit")
        assert await ended(process) == 7
        await until(lambda: not is_alive(child))


async def test_modules_are_imported_before_the_fork_and_after_a_restart() -> None:
    async with serving(preload=(LIGHT,)) as server:
        first = await spawned(server)
        assert await answer(first, f"has {LIGHT}") == "yes"
        assert (server.preload("sndhdr"), server.preload("sndhdr")) == (True, False)
        os.kill(parent_of(await first.started()), signal.SIGKILL)
        assert await ended(first) == -signal.SIGKILL
        second = await spawned(server)
        assert await answer(second, f"has {LIGHT}") == "yes"
        assert await answer(second, "has sndhdr") == "yes"
        second.connection.close()
        assert await ended(second) == 0


async def test_a_dead_zygote_is_replaced_before_the_loop_has_heard_of_its_death() -> None:
    async with serving() as server:
        first = await spawned(server)
        zygote = parent_of(await first.started())
        os.kill(zygote, signal.SIGKILL)
        os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - unheard of
        second = await spawned(server)
        assert parent_of(await second.started()) != zygote
        for process in (first, second):
            process.kill()
            await ended(process)


async def test_a_process_has_no_socket_but_its_own() -> None:
    async with serving() as server:
        first, second = await spawned(server), await spawned(server)
        assert [await answer(each, "files") for each in (first, second)] == ["1", "1"]
        for process in (first, second):
            process.connection.close()
            assert await ended(process) == 0


async def test_a_fork_that_fails_ends_that_process_only() -> None:
    async with serving() as server:
        first = await spawned(server)
        server.preload("integration.forkserver.unforkable")
        second = server.spawn()
        with pytest.raises(InfraFailed, match=r"cannot fork.*temporarily unavailable"):
            await second.started()
        assert await ended(second) == 1
        assert not first.ended.done()
        assert await answer(first, f"has {LIGHT}") == "no"
        first.connection.close()
        await ended(first)


async def test_a_ready_zygote_is_not_waited_for() -> None:
    async with serving() as server:
        process = await spawned(server)
        async with asyncio.timeout(PATIENCE_S / 2):
            await server.ready(within_s=PATIENCE_S)
        process.kill()
        await ended(process)


async def test_a_target_that_cannot_be_imported_is_told() -> None:
    server = ForkServer("no.such.module:live")
    try:
        with pytest.raises(InfraFailed, match=r"no\.such\.module:live died"):
            await server.ready(within_s=PATIENCE_S)
        process = server.spawn()
        assert await ended(process) == -signal.SIGKILL
        with pytest.raises(InfraFailed, match="died before it could fork"):
            await process.started()
    finally:
        await server.aclose()


async def test_cold_processes_share_nothing_and_leave_no_zygote() -> None:
    async with serving(is_cold=True) as server:
        assert not server.preload(LIGHT)
        processes = [await spawned(server) for _ in range(2)]
        zygotes = [parent_of(await process.started()) for process in processes]
        assert len(set(zygotes)) == 2
        assert await answer(processes[0], f"has {LIGHT}") == "no"
        for process in processes:
            process.kill()
            await ended(process)
        await until(lambda: not any(map(is_alive, zygotes)))


async def test_closing_ends_all_and_what_is_spawned_later_has_ended() -> None:
    async with serving() as server:
        processes = [await spawned(server) for _ in range(2)]
        zygote = parent_of(await processes[0].started())
        await server.aclose()
        assert not is_alive(zygote)
        processes.append(server.spawn())
        assert [await ended(process) for process in processes] == [-signal.SIGKILL] * 3


OWNER = """
import asyncio
from pathlib import Path
from integration.forkserver.test_forkserver import *

async def main():
    server = ForkServer(TARGET, directory=Path(sys.argv[1]))
    process = await spawned(server)
    print(await process.started(), await answer(process, "child"), flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_all_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    directory.mkdir()
    argv = [sys.executable, "-c", OWNER, str(directory)]
    with subprocess.Popen(argv, env=environ(), stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        owner.kill()
    await until(lambda: not any(map(is_alive, pids)))
    await until(lambda: not directory.exists())
