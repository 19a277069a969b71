"""Functions in real worker processes: warm, hedged, killed, and gone in the end."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC240 - other processes tell by files, and nothing else runs

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from process_support import environ, is_alive

from artangram.core.errors import CallFailed, InfraFailed
from artangram.functions import Function
from artangram.functions.function import FunctionSpec
from artangram.functions.hedging import LEAST_SEEN
from artangram.functions.local import ATTEMPTS, LocalFunctions
from integration.functions import subjects  # by a name that workers can import, too


@asynccontextmanager
async def running(*, ceiling: int = 2, idle_s: float = 60.0) -> AsyncIterator[LocalFunctions]:
    functions = LocalFunctions(ceiling=ceiling, idle_s=idle_s)
    functions.expect(subjects.add.spec)
    try:
        yield functions
    finally:
        await functions.aclose()


async def called(
    functions: LocalFunctions, function: Function[..., Any], *args: object, hedged: bool = False
) -> Any:
    body = function.encode(*args)
    return function.decode(await functions.call(function.spec, body, hedged=hedged))


async def until(is_true: Any) -> None:
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0.005)


async def test_a_function_runs_in_another_process_and_answers() -> None:
    async with running() as functions:
        assert await called(functions, subjects.add, 1, 2) == 3
        pid, number = await called(functions, subjects.worker)
        assert (pid != os.getpid(), number) == (True, "1")
        assert functions.workers.num_cold_starts == 1


async def test_objects_and_large_answers_travel() -> None:
    async with running() as functions:
        assert (await called(functions, subjects.moved, subjects.Point(1))).x == 2
        data = os.urandom(3 << 20)
        assert await called(functions, subjects.doubled, data) == data * 2


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        (subjects.fail, ("no such luck",), r"(?s)subjects.py.*ValueError: no such luck$"),
        (subjects.leave, (), "SystemExit: so long"),
        (subjects.unsendable, (), "pickle"),
        (subjects.hungry, (512,), "MemoryError"),
    ],
)
async def test_what_a_function_raises_is_its_own_failure(
    function: Function[..., Any], args: tuple[object, ...], says: str
) -> None:
    async with running() as functions:
        with pytest.raises(CallFailed, match=says) as raised:
            await called(functions, function, *args)
        assert "functions/inside" not in str(raised.value).partition("\n")[2].splitlines()[1]
        pids = {(await called(functions, subjects.worker))[0] for _ in range(3)}
        assert len(pids) == 1  # And the worker survives it.
        assert functions.workers.num_cold_starts == 1


async def test_the_limit_of_one_function_is_not_that_of_the_next() -> None:
    async with running(ceiling=1) as functions:
        assert await called(functions, subjects.hungry, 1) == 1 << 20
        assert len(await called(functions, subjects.doubled, bytes(12 << 20))) == 24 << 20
        assert functions.num_workers_lost == 0


async def test_what_a_worker_cannot_import_is_no_failure_of_the_function() -> None:
    spec = FunctionSpec(name="ghost", target="no.such.module:f")
    async with running() as functions:
        with pytest.raises(InfraFailed, match=r"cannot import no\.such\.module:f"):
            await functions.call(spec, subjects.add.encode(1))


async def test_workers_never_exceed_the_ceiling_and_go_back_to_zero(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with running(ceiling=3, idle_s=0.05) as functions:
        calls = [asyncio.create_task(called(functions, subjects.wait_for, str(go)))]
        calls += [asyncio.create_task(called(functions, subjects.add, n)) for n in range(20)]
        await until(lambda: all(call.done() for call in calls[1:]))
        assert functions.workers.num_cold_starts <= 3
        go.touch()
        pid = await calls[0]
        await until(lambda: functions.workers.num_alive == 0)
        await until(lambda: not is_alive(pid))
        assert await called(functions, subjects.add, 1) == 2
        assert functions.workers.num_cold_starts <= 4


async def test_forks_of_one_process_do_not_draw_the_same_numbers(tmp_path: Path) -> None:
    async with running() as functions:
        first = await called(functions, subjects.draw)
        wait = asyncio.create_task(called(functions, subjects.wait_for, str(tmp_path / "go")))
        await until(lambda: functions.workers.num_busy == 1)
        assert await called(functions, subjects.draw) != first
        wait.cancel()


async def test_a_call_whose_worker_is_killed_is_made_again(tmp_path: Path) -> None:
    async with running() as functions:
        assert await called(functions, subjects.die, 2, str(tmp_path)) == 3
        assert functions.num_workers_lost == 2


async def test_a_call_that_kills_every_worker_fails_as_infrastructure(tmp_path: Path) -> None:
    async with running() as functions:
        with pytest.raises(InfraFailed, match=f"{ATTEMPTS} workers died"):
            await called(functions, subjects.die, 99, str(tmp_path))
        assert len(list(tmp_path.iterdir())) == ATTEMPTS


async def test_workers_that_died_idle_cost_no_attempt(tmp_path: Path) -> None:
    async with running(ceiling=ATTEMPTS) as functions:
        go = tmp_path / "go"
        waiting = [called(functions, subjects.wait_for, str(go)) for _ in range(ATTEMPTS)]
        calls = [asyncio.create_task(call) for call in waiting]
        await until(lambda: functions.workers.num_busy == ATTEMPTS)
        go.touch()
        for pid in await asyncio.gather(*calls):
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: not is_alive(pid))
        assert await called(functions, subjects.add, 1) == 2
        assert functions.num_workers_lost == 0


async def test_a_dead_zygote_is_replaced_and_no_call_is_lost(tmp_path: Path) -> None:
    async with running() as functions:
        calls = [
            asyncio.create_task(called(functions, subjects.wait_for, str(tmp_path / "go")))
            for _ in range(2)
        ]
        (pid, _) = await called_in_spare(functions)
        os.kill(parent_of(pid), signal.SIGKILL)
        (tmp_path / "go").touch()
        assert len(await asyncio.gather(*calls)) == 2
        assert await called(functions, subjects.add, 1) == 2


async def called_in_spare(functions: LocalFunctions) -> tuple[int, str]:
    """A worker's own account of itself, with room made for it."""
    functions.workers.ceiling += 1
    found: tuple[int, str] = await called(functions, subjects.worker)
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_cancelled_call_takes_its_processes_along(tmp_path: Path) -> None:
    async with running() as functions:
        call = asyncio.create_task(called(functions, subjects.begin_and_wait, str(tmp_path)))
        await until((tmp_path / "pids").exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        for pid in map(int, (tmp_path / "pids").read_text().split()):
            await until(lambda pid=pid: not is_alive(pid))
        assert functions.workers.num_busy == 0


async def test_closing_ends_the_calls_that_run_and_those_that_wait(tmp_path: Path) -> None:
    async with running(ceiling=1) as functions:
        go = str(tmp_path / "never")
        calls = [asyncio.create_task(called(functions, subjects.wait_for, go)) for _ in range(3)]
        pid, _ = await called_in_spare(functions)
        zygote = parent_of(pid)
        await functions.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [InfraFailed] * 3
        assert not is_alive(zygote)
        assert functions.workers.num_busy == 0


async def practised(
    functions: LocalFunctions, tmp_path: Path, stuck: Any = subjects.stuck_once
) -> Path:
    """A folder in which `stuck` is stuck, after so many quick calls that it is known."""
    used, fresh = tmp_path / "used", tmp_path / "fresh"
    used.mkdir()
    fresh.mkdir()
    (used / "mark").touch()
    for _ in range(LEAST_SEEN):
        await called(functions, stuck, str(used))
    return fresh


async def test_a_late_call_gets_a_second_copy_and_the_first_one_is_ended(tmp_path: Path) -> None:
    async with running() as functions:
        folder = await practised(functions, tmp_path)
        winner = await called(functions, subjects.stuck_once, str(folder), hedged=True)
        assert (functions.num_hedges, functions.num_hedges_won) == (1, 1)
        pids = {int(mark.name.partition("-")[0]) for mark in folder.iterdir()}
        (loser,) = pids - {winner}
        await until(lambda: not is_alive(loser))
        await until(lambda: functions.workers.num_alive == 1)


async def test_a_call_makes_a_second_copy_leave_when_the_ceiling_is_reached(
    tmp_path: Path,
) -> None:
    async with running() as functions:
        for _ in range(LEAST_SEEN):
            await called(functions, subjects.wait_for, "/")
        go = str(tmp_path / "go")
        late = asyncio.create_task(called(functions, subjects.wait_for, go, hedged=True))
        await until(lambda: functions.num_hedges == 1)
        assert functions.workers.num_busy == 2
        assert await called(functions, subjects.add, 1) == 2
        Path(go).touch()
        await late
        assert functions.num_hedges_won == 0


async def test_without_a_worker_to_spare_there_is_no_second_copy(tmp_path: Path) -> None:
    async with running(ceiling=1) as functions:
        for _ in range(LEAST_SEEN):
            await called(functions, subjects.wait_for, "/")
        go = str(tmp_path / "go")
        late = asyncio.create_task(called(functions, subjects.wait_for, go, hedged=True))
        await asyncio.sleep(0.1)
        Path(go).touch()
        await late
        assert (functions.num_hedges, functions.workers.num_cold_starts) == (0, 1)


async def test_when_the_first_copy_dies_the_second_stands_for_the_call(tmp_path: Path) -> None:
    async with running() as functions:
        folder = await practised(functions, tmp_path, subjects.stuck_until_dead)
        stuck = called(functions, subjects.stuck_until_dead, str(folder), hedged=True)
        call = asyncio.create_task(stuck)
        await until(lambda: functions.num_hedges == 1 and any(folder.iterdir()))
        (begun,) = folder.iterdir()
        first = int(begun.name)
        os.kill(first, signal.SIGKILL)
        assert await call != first


OWNER = """
import asyncio, sys
from artangram.functions.local import LocalFunctions
from integration.functions import subjects

async def main():
    functions = LocalFunctions(ceiling=2)
    body = subjects.begin_and_wait.encode(sys.argv[1])
    await functions.call(subjects.begin_and_wait.spec, body)

asyncio.run(main())
"""


async def test_workers_end_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], env=environ()) as owner:
        await until((tmp_path / "pids").exists)
        owner.kill()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        await until(lambda pid=pid: not is_alive(pid))
