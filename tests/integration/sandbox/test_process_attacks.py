"""Hostile programs that are started beside others: they may end nothing but themselves, on time."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from busy_machine import at_best, eventually

from artangram.sandbox import Command, HostImage, Limits, NamespaceProvider, Output
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.process import ProcessInput, TerminalSize

from .conftest import HELPERS, PYTHON, Attack

pytestmark = pytest.mark.asyncio(loop_scope="package")

LIMIT_S = 0.3
LATE_S = 0.05
ESCAPES = {
    "daemons": "os.fork() or (os.setsid(), os.fork() and os._exit(0), time.sleep(600))",
    "own session": "os.fork() or (os.setsid(), time.sleep(600))",
    "no adoption": "libc.prctl(36, 0); os.fork() or (os.fork() and os._exit(0), time.sleep(600))",
    "deaf": "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]",
    "stopped": "os.fork() or (os.kill(os.getpid(), 19), time.sleep(600))",
    "forking on": "[os.fork() for _ in range(4)]; os.setsid() if os.getpid() % 2 else 0",
}


def a_process(code: str, **more: object) -> Command:
    argv = (*PYTHON, HELPERS + "import time\n" + code)
    return Command(argv=argv, parallel=True, **{"timeout_s": 60.0} | more)  # type: ignore[arg-type]


def ignore(piece: Output) -> None:
    return


async def inside(sandbox: LocalSandbox) -> list[str]:
    """What runs there, init included, as `ps` would show it."""
    listed = await sandbox.run(
        Command(argv=("sh", "-c", "for f in /proc/[0-9]*/stat; do cat $f 2>/dev/null; done"))
    )
    rows = [line.rpartition(")") for line in listed.stdout.decode().splitlines()]
    names = [row[0].split("(", 1)[1] for row in rows if row[2].split()[0] not in "ZX"]
    return sorted(name for name in names if name not in ("sh", "cat"))


@pytest.mark.parametrize("escape", ESCAPES)
async def test_a_tree_ends_with_its_limit_and_its_neighbours_do_not(
    sandbox: LocalSandbox, escape: str
) -> None:
    before = await inside(sandbox)
    neighbour = await sandbox.start(a_process("os.fork(); time.sleep(600)"), ignore)

    async def late() -> float:
        hostile = await sandbox.start(
            a_process(ESCAPES[escape] + "\ntime.sleep(600)", timeout_s=LIMIT_S), ignore
        )
        result = await hostile.wait()
        assert result.timed_out
        return result.run_s

    await at_best(late, below=LIMIT_S + LATE_S)
    left = await inside(sandbox)
    assert len(left) == len(before) + 2, left
    neighbour.end()
    await neighbour.wait()
    assert await inside(sandbox) == before


async def test_a_process_that_kills_all_others_fails_only_programs(
    sandbox: LocalSandbox,
) -> None:
    """They are one user, so it may; the sandbox and its answers stay."""
    victim = await sandbox.start(a_process("time.sleep(600)"), ignore)
    killer = await sandbox.start(
        a_process("os.kill(-1, 9); time.sleep(600)", timeout_s=1.0), ignore
    )
    assert (await victim.wait()).signal == 9
    assert (await killer.wait()).timed_out
    assert (await sandbox.run(Command(argv=("echo", "fine")))).stdout == b"fine\n"


async def test_a_bomb_beside_a_command_ends_on_time(sandbox: LocalSandbox) -> None:
    bomb = await sandbox.start(
        a_process("while True:\n  try: os.fork()\n  except OSError: pass", timeout_s=LIMIT_S),
        ignore,
    )
    result = await bomb.wait()
    assert result.timed_out
    assert (await sandbox.run(Command(argv=("echo", "fine")))).stdout == b"fine\n"
    assert len(await inside(sandbox)) == 1


async def test_more_processes_than_there_may_be_are_refused(provider: NamespaceProvider) -> None:
    sandbox = await provider.create(HostImage(), limits=Limits(processes=200))
    command = Command(argv=("cat",), parallel=True)
    started = [await sandbox.start(command, ignore) for _ in range(64)]
    with pytest.raises(ValueError, match="64 processes"):
        await sandbox.start(command, ignore)
    before = time.monotonic()
    await sandbox.close()
    assert time.monotonic() - before < 5
    assert all(process.pid for process in started)


async def test_output_without_end_waits_for_its_reader(sandbox: LocalSandbox) -> None:
    sizes: list[int] = []
    loud = await sandbox.start(
        Command(argv=("cat", "/dev/zero"), parallel=True),
        lambda piece: sizes.append(len(piece.data)),
    )
    assert await eventually(lambda: sum(sizes) >= 1 << 20)
    await asyncio.sleep(0.1)
    assert sum(sizes) <= (1 << 20) + (64 << 10)
    await loud.feed(ProcessInput(taken=sum(sizes)))
    assert await eventually(lambda: sum(sizes) >= 2 << 20)
    loud.end()
    assert (await loud.wait()).signal == 9


async def test_descriptors_and_pipes_do_not_pile_up(sandbox: LocalSandbox) -> None:
    async def one() -> None:
        process = await sandbox.start(Command(argv=("true",), parallel=True), ignore)
        assert (await process.wait()).exit_code == 0

    await one()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        await one()
    assert len(os.listdir("/proc/self/fd")) == before
    shown = await sandbox.run(Command(argv=("sh", "-c", "ls /proc/1/fd 2>&1 | wc -l")))
    assert shown.exit_code == 0


async def test_terminals_are_private_and_few(sandbox: LocalSandbox, attack: Attack) -> None:
    heard: list[bytes] = []
    shell = await sandbox.start(
        Command(argv=("sh",), parallel=True, terminal=TerminalSize()),
        lambda piece: heard.append(piece.data),
    )
    await shell.feed(ProcessInput(stdin=b"tty\n"))
    assert await eventually(lambda: b"/dev/pts/0" in b"".join(heard))
    # The host's terminals are not there, and no more than 64 can be opened.
    opened = await attack(
        "count = 0\ntry:\n  while True: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY); count += 1\n"
        "except OSError as error: print(count, errno.errorcode[error.errno])\n"
        "print(len([n for n in os.listdir('/dev/pts') if n.isdigit()]))"
    )
    assert opened.stdout == b"63 ENOSPC\n64\n"
    # Bytes cannot be put into the input of a terminal that is not one's own.
    pushed = await attack(
        "fd = os.open('/dev/pts/0', os.O_RDWR | os.O_NOCTTY)\n"
        "import fcntl; print(attempt(fcntl.ioctl, fd, 0x5412, b'x'))"
    )
    assert pushed.stdout in (b"EPERM\n", b"EIO\n")
    shell.end()
    await shell.wait()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_each_process_has_its_own_cores(sandbox: LocalSandbox) -> None:
    show = "while True:\n  print(sorted(os.sched_getaffinity(0)), flush=True); time.sleep(0.02)"
    heard: dict[int, list[bytes]] = {0: [], 1: []}
    started = []
    for core, pieces in heard.items():
        started.append(
            await sandbox.start(
                a_process(show, cores=(core,)), lambda piece, to=pieces: to.append(piece.data)
            )
        )
    for core, pieces in heard.items():
        assert await eventually(lambda pieces=pieces: len(pieces) > 2)
        assert set(b"".join(pieces).split(b"\n")) <= {b"[%d]" % core, b""}
    await sandbox.run(Command(argv=("true",), cores=(1,)))
    await started[0].resize((0, 1))
    assert await eventually(lambda: b"[0, 1]" in heard[0][-1])
    assert b"[0" not in heard[1][-1]
    for process in started:
        process.end()
        await process.wait()
