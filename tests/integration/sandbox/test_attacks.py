"""Hostile programs in the real sandbox: each is stopped, the sandbox and its neighbours live on."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from busy_machine import at_best

from artangram.core.errors import BadInput
from artangram.sandbox import (
    Command,
    CommandResult,
    CpuShare,
    HostImage,
    IsolationLevel,
    NamespaceProvider,
    SandboxError,
)
from artangram.sandbox.namespace.kernel import processes_below
from artangram.sandbox.namespace.sandbox import LocalSandbox

from .conftest import PYTHON, SMALL, Attack, groups_of

pytestmark = pytest.mark.asyncio(loop_scope="package")

CACHESTAT = 451
SLACK_S = 1.0  # until the caller sees it
WAIT = "import time\nwhile not ({}): time.sleep(0.005)\n"
# Who is kept, and does that when nobody is left of the action that left it.
STAYS = "if os.fork() == 0:\n  while os.getppid() != 1: pass\n  {}"


async def still_works(sandbox: LocalSandbox) -> bool:
    result = await sandbox.run(Command(argv=("echo", "alive")))
    return result.stdout == b"alive\n" and result.leftovers_killed == 0


async def ended_on_time(
    attack: Attack, code: str, *, timeout_s: float, late_s: float
) -> list[CommandResult]:
    """It ends at its deadline, and the caller hears of it: at least one of these did so."""
    results: list[CommandResult] = []

    async def lateness() -> float:
        began_at = time.monotonic()
        result = await attack(code, timeout_s=timeout_s)
        assert result.timed_out
        assert result.run_s >= timeout_s
        results.append(result)
        told_s = time.monotonic() - began_at - result.run_s
        return max((result.run_s - timeout_s) / late_s, told_s / SLACK_S)

    await at_best(lateness, below=1.0)
    return results


async def written(sandbox: LocalSandbox, name: str) -> bool:
    """Return when the program has made this file."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            await sandbox.read(name)
            return True
        await asyncio.sleep(0.005)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def score_of(pid: int) -> int:
    """How likely the kernel takes it when memory ends."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def dirty_pages(path: Path) -> int:
    """Pages that are not yet on the disk; 0 where the kernel does not tell."""
    libc, about = ctypes.CDLL(None), (ctypes.c_uint64 * 5)()
    with path.open("rb") as file:
        whole = (ctypes.c_uint64 * 2)(0, 0)
        failed = libc.syscall(CACHESTAT, file.fileno(), whole, about, 0)
    return 0 if failed else about[1]


class TestOutput:
    """A program has its ends of two pipes, and can do with them what a program can."""

    @pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, 64 << 10, 300_000])
    async def test_output_of_any_size_is_whole(self, attack: Attack, size: int) -> None:
        result = await attack(
            f"data = b'o' * {size}\n"
            "while data: data = data[os.write(1, data):]\n"
            f"os.write(2, b'e' * min({size}, 60000))"
        )
        assert result.stdout == b"o" * size
        assert result.stderr == b"e" * min(size, 60000)

    @pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, 64 << 10, 300_000])
    async def test_so_is_that_of_a_program_that_ends_at_once(
        self, sandbox: LocalSandbox, size: int
    ) -> None:
        """Too soon for anybody to watch its pipes."""
        for _ in range(5):
            result = await sandbox.run(
                Command(argv=("/usr/bin/head", "-c", str(size), "/dev/zero"))
            )
            assert (result.exit_code, result.stdout, result.stderr) == (0, bytes(size), b"")
            error = await sandbox.run(Command(argv=("/bin/sh", "-c", "echo o; echo e >&2")))
            assert (error.stdout, error.stderr) == (b"o\n", b"e\n")

    async def test_pipes_in_other_modes_give_all_they_hold(self, attack: Attack) -> None:
        """Packets, a larger pipe: fewer bytes per read, more bytes than usual."""
        result = await attack(
            "import fcntl\n"
            "fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\n"
            "fcntl.fcntl(2, 1031, 1 << 20)\n"
            "for number in range(10): os.write(1, b'%d\\n' % number)\n"
            "os.write(2, b'e' * 1000000)",
            output_bytes=2 << 20,
        )
        assert result.stdout.split() == [b"%d" % number for number in range(10)]
        assert result.stderr == b"e" * 1_000_000

    async def test_one_action_does_not_change_the_pipes_of_the_next(self, attack: Attack) -> None:
        spoil = "import fcntl\nfor fd in range(3): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)"
        look = "import fcntl\nprint([fcntl.fcntl(fd, 3) & os.O_NONBLOCK for fd in (1, 2)])"
        await attack(spoil)
        assert (await attack(look)).stdout == b"[0, 0]\n"


KEEP_40 = "for i in $(seq 40); do setsid -f sleep 100; done"


@contextlib.contextmanager
def at_most_processes(provider: NamespaceProvider, *, more: int) -> Iterator[None]:
    """A machine that has only a few process numbers left for sandboxes."""
    above = [group for group in groups_of(provider) if (group / "pids.max").exists()]
    if not above:
        pytest.skip("control groups do not count processes here")
    most = [(group / "pids.max", (group / "pids.max").read_text()) for group in above]
    try:
        for group in above:
            now = int((group / "pids.current").read_text())
            (group / "pids.max").write_text(str(now + more))
        yield
    finally:
        for path, value in most:
            path.write_text(value)


class TestMachine:
    """What a sandbox lacks because others have it is no failure of its program."""

    async def test_a_machine_without_process_numbers_is_no_failure_of_a_program(
        self, provider: NamespaceProvider, sandbox: LocalSandbox
    ) -> None:
        lack = pytest.raises(SandboxError, match="this machine has no room for more processes")
        with at_most_processes(provider, more=0), lack:
            await sandbox.run(Command(argv=("true",)))
        assert await still_works(sandbox)

    async def test_a_program_that_fails_for_what_others_keep_has_not_failed(
        self, provider: NamespaceProvider, sandbox: LocalSandbox
    ) -> None:
        neighbour = await provider.create(HostImage(), limits=SMALL)
        await sandbox.run(Command(argv=("sh", "-c", KEEP_40), keep=True))
        fork = Command(argv=("sh", "-c", "for i in $(seq 20); do sleep 1 & done; wait"))
        assert (await neighbour.run(fork)).ok
        with at_most_processes(provider, more=4):
            with pytest.raises(SandboxError, match="this machine ran out of processes"):
                await neighbour.run(fork)
            assert (await neighbour.run(Command(argv=("true",)))).ok
        failed = await neighbour.run(Command(argv=("false",)))
        assert failed.exit_code == 1, "a machine with room leaves failures to their programs"
        await neighbour.close()

    async def test_no_more_is_kept_when_sandboxes_keep_much_of_the_machine(
        self, provider: NamespaceProvider, sandbox: LocalSandbox
    ) -> None:
        neighbour = await provider.create(HostImage(), limits=SMALL)
        await sandbox.run(Command(argv=("sh", "-c", KEEP_40), keep=True))
        with at_most_processes(provider, more=60):
            with pytest.raises(SandboxError, match="too many to keep more; close some of them"):
                await neighbour.run(Command(argv=("sh", "-c", KEEP_40), keep=True))
            assert (await neighbour.run(Command(argv=("true",)))).ok
        assert (await neighbour.run(Command(argv=("true",), keep=True))).ok
        await neighbour.close()

    async def test_kept_processes_that_fill_their_own_sandbox_are_its_own_doing(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        await attack(
            "import time\n"
            "while (pid := attempt(os.fork)) and pid != 'EAGAIN': pass\n"
            "if not pid: time.sleep(60)",
            keep=True,
        )
        await sandbox.run(Command(argv=("sleep", "0"), keep=True))
        filled = await sandbox.run(Command(argv=("sleep", "0"), processes=8))
        assert (filled.exit_code, filled.start_error) == (
            126,
            "Resource temporarily unavailable",
        )


class TestBombs:
    async def test_fork_bomb_is_held_and_ends_on_time(
        self, sandbox: LocalSandbox, attack: Attack, late_s: float
    ) -> None:
        bomb = "while True:\n  try: os.fork()\n  except OSError: pass"
        results = await ended_on_time(attack, bomb, timeout_s=0.5, late_s=late_s)
        assert 40 <= max(result.leftovers_killed for result in results) <= SMALL.processes
        assert await still_works(sandbox)

    async def test_fork_bomb_beside_other_commands_ends_on_time(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack, late_s: float
    ) -> None:
        """There its init begins by giving way."""
        first, *_, last = sorted(os.sched_getaffinity(0))
        other = await provider.create(HostImage(), limits=SMALL)
        beside = asyncio.create_task(other.run(Command(argv=("sleep", "1000"), cores=(last,))))
        there = functools.partial(attack, cores=(first,))
        await there("")
        bomb = "while True:\n  try: os.fork()\n  except OSError: pass"
        await ended_on_time(there, bomb, timeout_s=0.5, late_s=late_s)
        assert await still_works(sandbox)
        beside.cancel()
        await asyncio.wait({beside})
        await other.close()

    async def test_fork_bomb_that_ignores_signals_and_leaves_sessions_dies_too(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        result = await attack(
            "import signal\n"
            "for n in (1, 2, 3, 13, 15): signal.signal(n, signal.SIG_IGN)\n"
            "while True:\n"
            "  try:\n    if os.fork() == 0: os.setsid()\n"
            "  except OSError: pass",
            timeout_s=0.3,
        )
        assert result.timed_out
        assert await still_works(sandbox)

    async def test_bomb_beside_kept_processes_ends_too(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        await sandbox.run(Command(argv=("setsid", "-f", "sleep", "100"), keep=True))
        result = await attack(
            "if os.fork() == 0:\n"
            "  while True:\n    try: os.fork(); os.setsid()\n    except OSError: pass\n"
            "import time; time.sleep(0.1)"
        )
        assert result.exit_code == 0
        assert result.leftovers_killed > 0
        after = await sandbox.run(Command(argv=("true",)))
        assert after.leftovers_killed == 0

    async def test_who_does_not_come_back_from_a_call_to_be_frozen_is_not_kept(
        self, attack: Attack
    ) -> None:
        """To map 30 GB of nothing, page by page, takes the kernel seconds."""
        await attack(
            "if os.fork() == 0:\n"
            "  size, libc.mmap.restype = ctypes.c_size_t(30 << 30), ctypes.c_void_p\n"
            "  at = ctypes.c_void_p(libc.mmap(None, size, 1, 0x4022, -1, 0))\n"
            "  assert libc.madvise(at, size, 15) == 0\n"
            "  open('/work/begun', 'w')\n"
            "  while True: libc.madvise(at, size, 22); libc.madvise(at, size, 4)\n"
            + WAIT.format("os.path.exists('/work/begun')"),
            keep=True,
        )
        after = await attack("print(1)")
        assert (after.stdout, after.leftovers_kept) == (b"1\n", 0)

    async def test_memory_bomb_is_out_of_memory_and_the_sandbox_lives(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        result = await attack("keep = []\nwhile True: keep.append(b'x' * (1 << 20))")
        assert (result.out_of_memory, result.signal) == (True, 9)
        assert result.peak_memory_bytes > 80 << 20
        assert await still_works(sandbox)

    async def test_the_peak_of_a_command_is_its_own(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Not that of the one before, nor of a file that was written and is gone by now."""
        if sandbox.traits.groups is None:
            pytest.skip("nobody measures peaks here")
        await attack("keep = b'x' * (40 << 20)")
        for _ in range(2):
            await sandbox.write("x", bytes(20 << 20))
            await sandbox.write("x", b"")
            result = await sandbox.run(Command(argv=("true",)))
            assert result.peak_memory_bytes < 15 << 20

    async def test_the_time_of_a_command_is_that_of_all_it_started(self, attack: Attack) -> None:
        spin = "import time\nwhile time.process_time() < 0.1: pass"
        result = await attack(f"if os.fork() == 0: os.fork()\n{spin}")
        assert result.cpu_s > 0.1
        waited = await attack(f"if os.fork(): os.wait()\n{spin}")
        assert waited.cpu_s > 0.2
        assert (await attack("")).cpu_s < 0.1

    async def test_many_small_eaters_never_look_like_broken_infrastructure(
        self, provider: NamespaceProvider
    ) -> None:
        """Each is smaller than PID 1 and as dear to the kernel, so PID 1 itself may be chosen."""
        sandbox = await provider.create(HostImage(), limits=SMALL)
        code = (
            "import os, time\n"
            "open('/proc/self/oom_score_adj', 'w').write('0')\n"
            "for _ in range(40):\n"
            "  if os.fork() == 0: break\n"
            "keep = []\n"
            "while True: keep.append(os.urandom(1 << 16)); time.sleep(0.001)"
        )
        argv = ("/usr/bin/python3", "-I", "-S", "-c", code)
        result = await sandbox.run(Command(argv=argv, timeout_s=60))
        assert result.out_of_memory
        assert not result.ok
        await sandbox.close()

    async def test_limits_of_one_action_hold_for_that_action_only(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        eater = "x = b'x' * (40 << 20)"
        assert (await attack(eater, memory_mb=32)).out_of_memory
        assert (await attack(eater)).exit_code == 0
        forker = "print(sum(isinstance(attempt(os.fork), int) for _ in range(1)))"
        assert (await attack(forker, processes=1)).stdout == b"0\n"
        assert (await attack(forker)).stdout.startswith(b"1\n")

    async def test_a_file_may_take_more_than_the_memory_of_the_action_before(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        assert (await attack("print()", memory_mb=16)).ok
        await sandbox.write("file", bytes(24 << 20))
        assert len(await sandbox.read("file")) == 24 << 20

    async def test_less_memory_than_its_files_take_is_refused_and_the_sandbox_lives(
        self, attack: Attack
    ) -> None:
        assert (await attack("open('x', 'wb').write(bytes(20 << 20))")).ok
        with pytest.raises(BadInput, match="memory_mb: 16 is less than the 2"):
            await attack("print()", memory_mb=16)
        assert (await attack("print('lives')")).stdout == b"lives\n"

    async def test_a_kept_process_killed_for_a_file_is_no_command_out_of_memory(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        kept = await attack(
            "import time\n"
            "if os.fork() == 0:\n  x = b'x' * (75 << 20); open('/work/up', 'w'); time.sleep(600)\n"
            + WAIT.format("os.path.exists('/work/up')"),
            keep=True,
        )
        assert kept.leftovers_kept == 1
        await sandbox.write("file", bytes(30 << 20))
        result = await sandbox.run(Command(argv=("true",)))
        assert (result.leftovers_kept, result.out_of_memory) == (0, False)

    @pytest.mark.parametrize("where", ["/work", "/tmp", "/dev/shm", "/var/tmp"])
    async def test_disk_fills_up_at_its_limit(self, attack: Attack, where: str) -> None:
        result = await attack(
            f"fd = os.open('{where}/fill', os.O_CREAT | os.O_WRONLY); n = 0\n"
            "try:\n  while True: n += os.write(fd, bytes(1 << 20))\n"
            "except OSError as e: print(errno.errorcode[e.errno], n >> 20)"
        )
        name, size_mb = result.stdout.split()
        assert name == b"ENOSPC"
        assert 16 <= int(size_mb) <= SMALL.disk_mb

    async def test_disk_of_one_action_is_for_that_action_only(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        filler = (
            "n = 0\n"
            "for where in ('/work', '/tmp', '/dev/shm'):\n"
            "  fd = os.open(where + '/fill', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)\n"
            "  try:\n    while True: n += os.write(fd, bytes(1 << 16))\n"
            "  except OSError as e: assert e.errno == errno.ENOSPC\n"
            "print(n >> 20)"
        )
        assert int((await attack(filler, disk_mb=4)).stdout) in range(2, 5)
        with pytest.raises(BadInput, match="disk_mb: 2 is less than what its files take"):
            await attack("print()", disk_mb=2)
        await sandbox.write("file", bytes(8 << 20))
        assert int((await attack(filler)).stdout) in range(16, SMALL.disk_mb)

    async def test_inodes_run_out_at_their_limit(self, attack: Attack) -> None:
        result = await attack(
            "n = 0\n"
            "try:\n  while True: os.close(os.open(f'/work/{n}', os.O_CREAT)); n += 1\n"
            "except OSError as e: print(errno.errorcode[e.errno], n)"
        )
        name, count = result.stdout.split()
        assert name == b"ENOSPC"
        assert int(count) < SMALL.inodes

    async def test_endless_output_on_both_channels_is_drained_and_capped(
        self, attack: Attack
    ) -> None:
        result = await attack(
            "while True: os.write(1, b'o' * 65536); os.write(2, b'e' * 65536)",
            timeout_s=0.4,
            output_bytes=5000,
        )
        assert result.timed_out
        assert (result.stdout, result.stderr) == (b"o" * 5000, b"e" * 5000)
        assert result.truncated_bytes > 1 << 20

    async def test_open_files_run_out_inside_only(self, attack: Attack) -> None:
        result = await attack(
            "n = 0\n"
            "try:\n  while True: os.open('/dev/null', os.O_RDONLY); n += 1\n"
            "except OSError as e: print(errno.errorcode[e.errno], n < 5000)"
        )
        assert result.stdout == b"EMFILE True\n"

    async def test_exhausted_user_limits_do_not_reach_a_neighbour(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Bytes in message queues are counted per user: every sandbox is a user of its own."""
        queue = "libc.mq_open(b'/%d' % n, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0"
        fill = f"n = 0\nwhile {queue}: n += 1\nprint(0 < n < 200, flush=True)\n"
        running = asyncio.create_task(attack(fill + "import time; time.sleep(1)"))
        await asyncio.sleep(0.3)
        neighbour = await provider.create(HostImage())
        code = f"import ctypes, os; n, libc = 0, ctypes.CDLL(None); print({queue})"
        assert (await neighbour.run(Command(argv=(*PYTHON, code)))).stdout == b"True\n"
        await neighbour.close()
        assert (await running).stdout == b"True\n"


class TestFiles:
    async def test_host_files_are_not_there(self, attack: Attack) -> None:
        here = Path(__file__)
        result = await attack(
            f"print([os.path.exists(p) for p in ({str(here)!r}, '/etc/shadow', '/root/.ssh',"
            " '/sys/fs/cgroup', '/var/lib/artangram', '/proc/1/root/etc', '/home/user')])"
        )
        assert result.stdout == b"[False, False, False, False, False, False, False]\n"

    async def test_base_is_read_only(self, attack: Attack) -> None:
        result = await attack(
            "print(attempt(os.open, '/usr/bin/sh', os.O_WRONLY),"
            " attempt(os.open, '/usr/evil', os.O_CREAT | os.O_WRONLY))"
        )
        assert result.stdout in (b"EACCES EROFS\n", b"EROFS EROFS\n")

    async def test_system_files_are_not_the_users(
        self, provider: NamespaceProvider, attack: Attack
    ) -> None:
        result = await attack(
            "print(attempt(os.open, '/etc/passwd', os.O_WRONLY), attempt(os.mkdir, '/evil'))"
        )
        # Without root there is one user only, and it owns the root directory of its sandbox.
        if provider.capabilities.level >= IsolationLevel.CGROUPS:
            assert result.stdout == b"EACCES EACCES\n"

    async def test_read_never_follows_a_link_out(
        self, sandbox: LocalSandbox, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret"
        secret.write_text("host")
        await sandbox.run(Command(argv=("ln", "-s", str(secret), "link")))
        await sandbox.run(Command(argv=("ln", "-s", "../" * 20 + str(secret)[1:], "climb")))
        await sandbox.run(Command(argv=("ln", "-s", f"/proc/1/root{secret}", "magic")))
        for name in ("link", "climb", "magic", str(secret), f"../../..{secret}"):
            with pytest.raises(OSError, match=r"No such file|denied|Too many levels"):
                await sandbox.read(name)

    async def test_write_never_follows_a_link_out(
        self, sandbox: LocalSandbox, tmp_path: Path
    ) -> None:
        target = tmp_path / "target"
        target.write_text("host")
        await sandbox.run(Command(argv=("ln", "-s", str(target), "link")))
        await sandbox.run(Command(argv=("ln", "-s", str(tmp_path), "folder")))
        for name in ("link", "folder/target", f"../../..{target}"):
            with contextlib.suppress(OSError):
                await sandbox.write(name, b"evil")
        assert target.read_text() == "host"

    @pytest.mark.parametrize(
        "path", ["fifo", "/dev/zero", "/proc/self/environ", "/proc/self/status", "/proc/kcore"]
    )
    async def test_read_of_what_is_no_file_fails_at_once(
        self, sandbox: LocalSandbox, path: str
    ) -> None:
        await sandbox.run(Command(argv=("mkfifo", "fifo")))

        async def refused() -> float:
            began_at = time.monotonic()
            with pytest.raises(OSError, match=r".+"):
                await sandbox.read(path)
            with pytest.raises(OSError, match=r".+"):
                await sandbox.write(path, b"x")
            return time.monotonic() - began_at

        await at_best(refused, below=0.5)

    async def test_no_name_leads_to_what_init_holds_open(self, sandbox: LocalSandbox) -> None:
        """Files of control groups among it, which tell of processes outside of the sandbox."""
        await sandbox.run(Command(argv=("true",), cores=(0,)))
        await sandbox.run(Command(argv=("ln", "-s", "/proc/self/fd", "held")))
        for number in range(20):
            for path in (f"held/{number}", f"/proc/1/fd/{number}", f"/dev/fd/{number}/etc/passwd"):
                with pytest.raises(OSError, match=r".+"):
                    await sandbox.read(path)
                with pytest.raises(OSError, match=r".+"):
                    await sandbox.write(path, b"x")

    async def test_write_beyond_the_disk_is_an_os_error(self, sandbox: LocalSandbox) -> None:
        with pytest.raises(OSError, match="No space"):
            await sandbox.write("big", bytes((SMALL.disk_mb + 1) << 20))
        assert sandbox.is_alive

    async def test_snapshot_of_a_hostile_tree_copies_no_host_file(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        await attack(
            "os.symlink('/etc/hostname', '/work/link'); os.mkfifo('/work/fifo')\n"
            "os.mkdir('/work/closed', 0o000); open('/work/odd\\udcff', 'w').write('x')\n"
            "import socket; socket.socket(socket.AF_UNIX).bind('/work/sock')"
        )
        sibling = await provider.create(await sandbox.snapshot())
        listing = await sibling.run(Command(argv=("ls", "/work")))
        assert b"closed" in listing.stdout
        assert b"fifo" not in listing.stdout
        assert b"sock" not in listing.stdout
        target = await sibling.run(Command(argv=("readlink", "link")))
        assert target.stdout == b"/etc/hostname\n"
        await sibling.close()

    async def test_snapshot_takes_no_more_disk_than_the_sandbox_had(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """A file of holes costs nothing in memory, and would fill the disk of the machine."""
        await attack(
            "fd = os.open('/work/sparse', os.O_CREAT | os.O_RDWR)\n"
            "for at in (0, 1 << 28, 3 << 28): os.pwrite(fd, b'data', at)\n"
            "os.truncate(fd, 1 << 30)\n"
            "os.truncate(os.open('/work/hole', os.O_CREAT | os.O_RDWR), 1 << 30)"
        )
        sibling = await provider.create(await sandbox.snapshot(), limits=SMALL)
        (layer,) = sibling.traits.layers
        copies = [os.stat(f"{layer}/work/{name}") for name in ("sparse", "hole")]
        assert [copy.st_size for copy in copies] == [1 << 30, 1 << 30]
        assert sum(copy.st_blocks for copy in copies) * 512 < 1 << 20
        read = (
            "import os; fd = os.open('/work/sparse', os.O_RDONLY)\n"
            "print([os.pread(fd, 5, at) for at in (0, 1 << 28, 3 << 28, (1 << 30) - 1)])"
        )
        told = await sibling.run(Command(argv=(*PYTHON, read)))
        assert eval(told.stdout) == [b"data\0"] * 3 + [b"\0"]
        await sibling.close()

    async def test_snapshot_keeps_links_as_links(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Each name would take as much of the disk as the file: 3 MB would be 300."""
        await attack(
            "os.mkdir('/work/d'); open('/work/d/first', 'wb').write(b'x' * (3 << 20))\n"
            "for number in range(99): os.link('/work/d/first', f'/work/{number}')"
        )
        before = set(os.listdir(provider.run_path / "snapshots" / "layers"))
        sibling = await provider.create(await sandbox.snapshot(), limits=SMALL)
        (layer,) = sibling.traits.layers
        inodes = {os.stat(f"{layer}/work/{name}").st_ino for name in ("d/first", "0", "98")}
        assert len(inodes) == 1
        assert set(os.listdir(provider.run_path / "snapshots" / "layers")) - before == {
            Path(layer).name
        }
        told = await sibling.run(Command(argv=("sh", "-c", "echo new > 7; cat 7; wc -c < d/first")))
        assert told.stdout.split() == [b"new", b"%d" % (3 << 20)]
        await sibling.close()

    @pytest.mark.parametrize("size", [1 << 43, (1 << 63) - 1])
    async def test_no_giant_hole_keeps_a_sandbox_from_its_snapshot(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack, size: int
    ) -> None:
        """No file may be larger than a disk allows for its copy."""
        result = await attack(
            "os.truncate(os.open('/work/most', os.O_CREAT | os.O_RDWR), 1 << 42)\n"
            "fd = os.open('/work/giant', os.O_CREAT | os.O_RDWR)\n"
            f"print(attempt(os.truncate, fd, {size}), attempt(os.pwrite, fd, b'x', {size - 1}))"
        )
        assert result.stdout == b"EFBIG EFBIG\n"
        sibling = await provider.create(await sandbox.snapshot(), limits=SMALL)
        told = await sibling.run(Command(argv=("stat", "-c", "%s", "most")))
        assert told.stdout == b"%d\n" % (1 << 42)
        await sibling.close()

    async def test_no_attribute_keeps_a_sandbox_from_its_snapshot(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """In memory they may be larger than on the disk: those that do not fit are left out."""
        made = await attack(
            "open('/work/file', 'w').close(); os.mkdir('/work/folder')\n"
            "for name in ('/work/file', '/work/folder'):\n"
            "  for key, size in (('a', 10), ('large', 60000), ('z', 10)):\n"
            "    print(attempt(os.setxattr, name, 'user.' + key, b'x' * size))"
        )
        if made.stdout != b"None\n" * 6:
            pytest.skip("this kernel has no such attributes in memory")
        sibling = await provider.create(await sandbox.snapshot(), limits=SMALL)
        code = "import os; print([os.listxattr(n) for n in ('/work/file', '/work/folder')])"
        told = await sibling.run(Command(argv=(*PYTHON, code)))
        for kept in eval(told.stdout):
            assert {"user.a", "user.z"} <= set(kept) <= {"user.a", "user.large", "user.z"}
        await sibling.close()

    async def test_snapshot_of_a_bottomless_tree_is_refused_and_leaves_nothing(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Each level would take two descriptors of the provider, who serves others as well."""
        await attack("for _ in range(600): os.mkdir('d'); os.chdir('d')")
        before = os.listdir(provider.run_path / "snapshots" / "layers")
        with pytest.raises(SandboxError, match="128 directories in each other"):
            await sandbox.snapshot()
        assert os.listdir(provider.run_path / "snapshots" / "layers") == before
        assert await still_works(sandbox)
        await attack("import shutil; sys.setrecursionlimit(9999); shutil.rmtree('d')")
        await provider.forget(await sandbox.snapshot())

    async def test_deletions_survive_a_snapshot(
        self, provider: NamespaceProvider, sandbox: LocalSandbox
    ) -> None:
        await sandbox.write("tree/file", b"x")
        await sandbox.write("single", b"x")
        first = await provider.create(await sandbox.snapshot())
        await first.run(Command(argv=("rm", "-r", "tree", "single")))
        await first.write("tree/other", b"y")
        second = await provider.create(await first.snapshot())
        listing = await second.run(Command(argv=("ls", "tree")))
        assert listing.stdout == b"other\n"
        with pytest.raises(FileNotFoundError):
            await second.read("single")
        await asyncio.gather(first.close(), second.close())


class TestKernel:
    async def test_calls_that_reach_out_are_refused(self, attack: Attack) -> None:
        """mount, umount2, pivot_root, chroot, setns, unshare, ptrace, process_vm_readv,
        process_vm_writev, keyctl, add_key, request_key, bpf, perf_event_open, kexec_load,
        init_module, finit_module, open_by_handle_at, userfaultfd, io_uring_setup,
        pidfd_getfd, kcmp, personality, open_tree, fsopen, mount_setattr, reboot, swapon, syslog,
        fanotify_init, clock_settime, sethostname."""
        numbers = (
            165, 166, 155, 161, 308, 272, 101, 310, 311, 250, 248, 249, 321, 298, 246, 175, 313,
            304, 323, 425, 438, 312, 135, 428, 430, 442, 169, 167, 103, 300, 227, 170,
        )  # fmt: skip
        result = await attack(f"print({{call(n, 0, 0, 0, 0, 0, 0) for n in {numbers}}})")
        assert result.stdout == b"{'EPERM'}\n"

    async def test_every_namespace_is_its_own(
        self, attack: Attack, provider: NamespaceProvider
    ) -> None:
        kinds = ["ipc", "mnt", "net", "pid", "uts"]
        kinds += ["cgroup"] if provider.capabilities.level >= IsolationLevel.CGROUPS else []
        kinds += ["user"] if os.getuid() else []
        seen = await attack(f"for k in {kinds}: print(os.readlink('/proc/self/ns/' + k))")
        ours = {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}
        theirs = set(seen.stdout.decode().split())
        assert len(theirs) == len(kinds), seen
        assert not theirs & ours

    async def test_nobody_takes_the_requests_that_the_machine_has_for_all(
        self, attack: Attack
    ) -> None:
        """Those of `io_setup`: the kernel counts them for no user and no group."""
        result = await attack("print(call(206, 65536, ctypes.byref(ctypes.c_ulong())))")
        assert result.stdout == b"ENOSYS\n"

    async def test_no_namespace_can_be_opened_by_clone(self, attack: Attack) -> None:
        flags = [0x10000000, 0x20000000, 0x40000000, 0x20000, 0x8000000, 0x4000000, 0x2000000]
        result = await attack(
            f"print({{call(56, flag | 17, 0, 0, 0, 0) for flag in {flags}}}, call(435, 0, 0))"
        )
        assert result.stdout == b"{'EPERM'} ENOSYS\n"

    async def test_other_call_tables_are_closed(self, attack: Attack) -> None:
        result = await attack("print(call(0x40000000 + 39), call(0x40000000 + 165))")
        assert result.stdout == b"EPERM EPERM\n"

    async def test_nothing_inside_holds_or_gains_a_capability(self, attack: Attack) -> None:
        result = await attack(
            "print([line.split()[1] for line in open('/proc/self/status')"
            " if line.startswith(('Cap', 'NoNewPrivs', 'Seccomp:'))])"
        )
        none = "'0000000000000000', " * 5
        assert result.stdout.decode() == f"[{none}'1', '2']\n"

    async def test_set_user_id_programs_give_nothing(self, attack: Attack) -> None:
        result = await attack(
            "import shutil, subprocess\n"
            "shutil.copy('/usr/bin/id', '/work/id'); os.chmod('/work/id', 0o6755)\n"
            "own = subprocess.run(['/work/id', '-u'], capture_output=True).stdout\n"
            "print(int(own) == os.getuid() != 0, attempt(os.setuid, 0), attempt(os.setgid, 0))\n"
            "print(subprocess.run(['/usr/bin/su', '-c', 'id'], capture_output=True).returncode)"
        )
        first, second = result.stdout.splitlines()
        assert first in (b"True EPERM EPERM", b"True EINVAL EINVAL")
        assert int(second) != 0

    async def test_devices_are_few_and_cannot_be_made(self, attack: Attack) -> None:
        result = await attack(
            "print(sorted(os.listdir('/dev')))\n"
            "print(attempt(os.mknod, '/work/mem', 0o20666, os.makedev(1, 1)),"
            " attempt(os.open, '/dev/evil', os.O_CREAT | os.O_WRONLY))"
        )
        names, refusals = result.stdout.decode().splitlines()
        allowed = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
        assert names == str(allowed.split(" "))
        assert refusals == "EPERM EROFS"

    async def test_kernel_settings_cannot_be_written(self, attack: Attack) -> None:
        result = await attack(
            "for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger',"
            " '/proc/sys/vm/drop_caches', '/proc/sys/net/ipv4/ip_forward'):\n"
            "  masked = os.path.exists(path) and os.stat(path).st_rdev == os.makedev(1, 3)\n"
            "  refused = ('EROFS', 'EACCES', 'ENOENT')\n"
            "  print(masked or attempt(os.open, path, os.O_WRONLY) in refused)"
        )
        assert result.stdout == b"True\n" * 4
        result = await attack(
            "print(sorted({line.split()[4] + line.split()[5][:2]"
            " for line in open('/proc/self/mountinfo')"
            " if line.split()[4] in ('/proc/sys', '/proc/irq', '/proc/bus')}))"
        )
        assert result.stdout == b"['/proc/busro', '/proc/irqro', '/proc/sysro']\n"

    async def test_proc_shows_of_the_machine_what_is_documented(self, attack: Attack) -> None:
        """Beside processes, `sys`, `net`, `sysvipc`, which are the sandbox's own or read-only."""
        result = await attack(
            "def tells(path):\n"
            "  try: return bool(open(path, 'rb').read(1))\n"
            "  except OSError: return False\n"
            "for here, folders, files in os.walk('/proc'):\n"
            "  if here == '/proc':\n"
            "    own = {'sys', 'net', 'self', 'thread-self', 'sysvipc'}\n"
            "    folders[:] = [n for n in folders if not n.isdigit() and n not in own]\n"
            "  print(*(path for name in files if tells(path := os.path.join(here, name))))"
        )
        said = Path("docs/sandbox.md").read_text().partition("What remains visible:")[2]  # noqa: ASYNC240
        said = said.partition("\n\n")[0]
        seen = {path.removeprefix("/proc/") for path in result.stdout.decode().split()}
        assert "cpuinfo" in seen
        assert not [path for path in seen - {"mounts"} if f"`{path}`" not in said]

    async def test_no_trigger_of_the_machines_pressure_can_be_set(self, attack: Attack) -> None:
        """The kernel takes milliseconds to end each of them, when their program is killed."""
        result = await attack(
            "for name in ('cpu', 'io', 'memory'):\n"
            "  print(attempt(os.open, '/proc/pressure/' + name, os.O_RDWR))"
        )
        assert result.stdout == b"ENOENT\n" * 3

    async def test_open_notifications_hold_up_no_deadline(
        self, sandbox: LocalSandbox, attack: Attack, late_s: float
    ) -> None:
        """The kernel took milliseconds to end each, and the whole sandbox was lost."""
        code = (
            "import time\n"
            "while (fd := libc.inotify_init1(0)) >= 0: libc.inotify_add_watch(fd, b'/work', 2)\n"
            "print(errno.errorcode[ctypes.get_errno()], flush=True)\n"
            "time.sleep(60)"
        )
        results = await ended_on_time(attack, code, timeout_s=0.5, late_s=late_s)
        assert results[-1].stdout == b"ENOSYS\n"
        assert await still_works(sandbox)

    async def test_a_program_that_follows_a_file_polls(self, attack: Attack) -> None:
        result = await attack(
            "import subprocess, time\n"
            "open('log', 'w').close()\n"
            "tail = subprocess.Popen(['tail', '-s', '0.05', '-f', 'log'], stdout=-1)\n"
            "open('log', 'a').write('followed\\n')\n"
            "print(tail.stdout.readline())"
        )
        assert result.stdout == b"b'followed\\n'\n"

    async def test_mounts_tell_nothing_of_the_host(
        self, provider: NamespaceProvider, attack: Attack
    ) -> None:
        result = await attack("print(open('/proc/self/mountinfo').read())")
        assert str(provider.run_path.parent).encode() not in result.stdout

    async def test_everything_is_mounted_without_set_user_id_and_devices(
        self, attack: Attack
    ) -> None:
        """Nodes of the host shown in /dev and own terminals are devices, and the only ones."""
        result = await attack(
            "for line in open('/proc/self/mountinfo'):\n"
            "  where, options = line.split()[4:6]\n"
            "  if not {'nosuid', 'nodev'} <= set(options.split(',')): print(where)"
        )
        shown = ("null", "zero", "full", "random", "urandom", "tty", "pts")
        bound = {"/dev/" + name for name in shown}
        bare = set(result.stdout.decode().split())
        assert bare <= bound | {path for path in bare if path.startswith("/proc/")}

    async def test_commands_are_the_kernels_first_choice_when_memory_ends(
        self, attack: Attack
    ) -> None:
        own = int(Path("/proc/self/oom_score_adj").read_text())  # noqa: ASYNC240 - a test may block
        result = await attack(
            "for who in ('self', '1'): print(open(f'/proc/{who}/oom_score_adj').read())"
        )
        theirs, of_init = map(int, result.stdout.split())
        assert (theirs, of_init) == (min(1000, max(0, own) + 500), max(0, own))

    async def test_priority_cannot_be_raised(self, attack: Attack) -> None:
        result = await attack(
            "print(attempt(os.nice, -5), attempt(os.sched_setscheduler, 0, os.SCHED_FIFO,"
            " os.sched_param(1)))"
        )
        assert result.stdout == b"EPERM EPERM\n"

    async def test_no_core_is_dumped(self, attack: Attack) -> None:
        result = await attack("os.abort()")
        assert (result.signal, result.exit_code) == (6, 134)

    async def test_nobody_forgets_that_no_core_is_dumped(self, attack: Attack) -> None:
        """With a limit of 0 the kernel would pipe it to a program of the machine."""
        result = await attack(
            "import resource\n"
            "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
            "resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0))\n"
            "print(resource.getrlimit(resource.RLIMIT_CORE))"
        )
        assert result.stdout == b"(1, 1)\n"

    async def test_nobody_waits_for_the_machines_disks(
        self, attack: Attack, tmp_path: Path
    ) -> None:
        """Written back at a program's wish, they would hold up everybody, and its own end."""
        (tmp_path / "file").write_bytes(bytes(1 << 20))
        dirty = dirty_pages(tmp_path / "file")
        if not dirty:
            return  # this kernel does not tell, or there is no disk
        result = await attack(
            "os.sync(); print(call(306, os.open('/usr/bin', os.O_RDONLY)), call(306, 0))"
        )
        assert result.stdout == b"0 0\n"
        assert dirty_pages(tmp_path / "file") == dirty


class TestNetwork:
    async def test_host_services_cannot_be_reached(self, attack: Attack) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as un:
            un.bind("\0artangram-test")
            un.listen()
            server.settimeout(0)
            port = server.getsockname()[1]
            result = await attack(
                "import socket\n"
                f"print(attempt(socket.socket().connect, ('127.0.0.1', {port})),"
                " attempt(socket.socket().connect, ('192.0.2.1', 80)),"
                " attempt(socket.socket(socket.AF_UNIX).connect, '\\0artangram-test'))"
            )
            assert result.stdout == b"ECONNREFUSED ENETUNREACH ECONNREFUSED\n"
            with pytest.raises(BlockingIOError):
                server.accept()

    async def test_only_known_socket_families_exist(self, attack: Attack) -> None:
        result = await attack(
            "ok = [f for f in range(64) if isinstance(call(41, f, 2, 0), int)]\n"
            "print(ok, call(41, 40, 1, 0), call(53, 40, 1, 0), call(41, 17, 3, 0))"
        )
        families, *refused = result.stdout.decode().rsplit(" ", 3)
        assert set(eval(families)) <= {1, 2, 10, 16}
        assert [r.strip() for r in refused] == ["EAFNOSUPPORT"] * 3

    async def test_netlink_tells_nothing_of_the_machine(self, attack: Attack) -> None:
        """Of its devices, for one; interfaces are those of the namespace."""
        result = await attack(
            "print(call(41, 16, 3, 0) > 0, {call(41, 16, 3, n) for n in (2, 4, 9, 12, 15, 16, 21)})"
        )
        assert result.stdout == b"True {'EPROTONOSUPPORT'}\n"

    async def test_protocols_are_few(self, attack: Attack) -> None:
        """For others the kernel would have the machine load a module, or try to."""
        result = await attack(
            "def known(family, kind):\n"
            "  tried = {n: call(41, family, kind | 0x80800, n) for n in range(300)}\n"
            "  return [n for n, result in tried.items() if isinstance(result, int)]\n"
            "for kind in range(1, 7): print(kind, known(2, kind), known(10, kind))"
        )
        assert result.stdout.splitlines()[:2] == [b"1 [0, 6] [0, 6]", b"2 [0, 17] [0, 17]"]
        assert result.stdout.splitlines()[2:] == [b"%d [] []" % kind for kind in range(3, 7)]

    async def test_raw_sockets_are_refused(self, attack: Attack) -> None:
        result = await attack("print(call(41, 2, 3, 1), call(41, 10, 3, 58))")
        assert result.stdout == b"EPERM EPERM\n"

    async def test_what_waits_in_sockets_is_limited(
        self, provider: NamespaceProvider, attack: Attack
    ) -> None:
        """Control groups of version 1 do not count it as memory, and all share one pool of it."""
        if provider.capabilities.level < IsolationLevel.CGROUPS:
            return  # nor is anything else of a whole sandbox
        result = await attack(
            "import socket\n"
            "ear, pairs, sent = socket.create_server(('127.0.0.1', 0)), [], 0\n"
            "for _ in range(40):\n"
            "  pairs.append((socket.create_connection(ear.getsockname()), ear.accept()[0]))\n"
            "  pairs[-1][0].setblocking(False)\n"
            "  try:\n    while True: sent += pairs[-1][0].send(bytes(65536))\n"
            "  except BlockingIOError: pass\n"
            "print(sent >> 20)"
        )
        assert 0 < int(result.stdout) <= SMALL.memory_mb // 2

    async def test_loopback_works_inside(self, attack: Attack) -> None:
        result = await attack(
            "import socket\n"
            "server = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_connection(server.getsockname()); print('connected')"
        )
        assert result.stdout == b"connected\n"


class TestInit:
    async def test_no_signal_reaches_pid_1(self, sandbox: LocalSandbox, attack: Attack) -> None:
        result = await attack(
            "import signal\nfor n in range(1, 65):\n  attempt(os.kill, 1, n)\nprint('sent')"
        )
        assert result.stdout == b"sent\n"
        assert await still_works(sandbox)

    async def test_pid_1_cannot_be_read_or_entered(self, attack: Attack) -> None:
        result = await attack(
            "for name in ('mem', 'environ', 'root/etc', 'cwd/etc', 'fd/3', 'maps', 'exe'):\n"
            "  print(attempt(os.open, '/proc/1/' + name, os.O_RDONLY))\n"
            "print(attempt(os.open, '/proc/1/oom_score_adj', os.O_WRONLY))\n"
            "pidfd = os.pidfd_open(1); print(call(438, pidfd, 3, 0))"
        )
        assert set(result.stdout.split()) <= {b"EACCES", b"EPERM"}

    async def test_pid_1_cannot_be_starved(self, sandbox: LocalSandbox, attack: Attack) -> None:
        """prlimit64, sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr,
        setpriority (process, user), ioprio_set on PID 1."""
        result = await attack(
            "space = ctypes.create_string_buffer(256)\n"
            "print({call(302, 1, 7, space, 0), call(203, 1, 128, space), call(144, 1, 5, space),"
            " call(142, 1, space), call(314, 1, space, 0), call(141, 0, 1, 19),"
            " call(141, 2, os.getuid(), 19), call(141, 1, 0, 19), call(251, 1, 1, 0),"
            " call(251, 2, 1, 0), call(251, 3, os.getuid(), 3 << 13)})"
        )
        assert result.stdout == b"{'EPERM'}\n"
        assert await still_works(sandbox)

    async def test_only_stdio_is_inherited(self, attack: Attack) -> None:
        result = await attack("print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
        assert result.stdout == b"[0, 1, 2]\n"

    async def test_result_cannot_be_forged_through_a_descriptor(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        result = await attack(
            "for fd in range(3, 64):\n  attempt(os.write, fd, bytes(64))\n"
            "for fd in range(16):\n  attempt(os.open, f'/proc/1/fd/{fd}', os.O_WRONLY)\n"
            "sys.exit(7)"
        )
        assert result.exit_code == 7
        assert await still_works(sandbox)

    async def test_descriptors_on_their_way_do_not_keep_init_from_answering(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """The kernel counts those that wait in sockets by user, and init is the same user."""
        running = asyncio.create_task(
            attack(
                "import array, resource, socket, time\n"
                "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
                "rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 250))]\n"
                "pairs = []\n"
                "def fill():\n"
                "  while True:\n"
                "    pairs.append(socket.socketpair()); pairs[-1][0].setblocking(False)\n"
                "    try:\n      while True: pairs[-1][0].sendmsg([b'x'], rights)\n"
                "    except BlockingIOError: pass\n"
                "print(attempt(fill)); open('/work/full', 'w')\n"
                + WAIT.format("os.path.exists('/work/seen')")
            )
        )
        assert await written(sandbox, "full")
        await sandbox.write("seen", b"")
        assert (await running).stdout == b"ETOOMANYREFS\n"
        assert await still_works(sandbox)

    async def test_nor_do_those_of_many_who_wait_to_send_them(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Each was asked when there were few: the kernel counts them when there is room."""
        running = asyncio.create_task(
            attack(
                "import array, socket\n"
                "rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 250))]\n"
                "def pair(name):\n"
                "  inlet = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
                "  outlet = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
                "  outlet.bind(name); inlet.connect(name); inlet.setblocking(False)\n"
                "  try:\n    while True: inlet.send(b'x')\n"
                "  except BlockingIOError: inlet.setblocking(True)\n"
                "  return inlet, outlet\n"
                "pairs = [pair(f'\\0{number}') for number in range(40)]\n"
                "for inlet, _ in pairs:\n"
                "  if os.fork() == 0: inlet.sendmsg([b'x'], rights); os._exit(0)\n"
                "import time; time.sleep(0.2)\n"
                "for _, outlet in pairs: outlet.recv(1)\n"
                "print(sum(os.wait()[1] for _ in pairs)); open('/work/full', 'w')\n"
                + WAIT.format("os.path.exists('/work/seen')")
            )
        )
        assert await written(sandbox, "full")
        await sandbox.write("seen", b"")
        assert (await running).stdout == b"0\n"
        assert await still_works(sandbox)

    async def test_reply_is_not_delayed_by_a_daemon_that_holds_the_pipes(
        self, attack: Attack
    ) -> None:
        kept: list[int] = []

        async def answered() -> float:
            began_at = time.monotonic()
            result = await attack(
                "print('done', flush=True)\nif os.fork() == 0:\n  import time; time.sleep(600)",
                keep=True,
            )
            assert result.stdout == b"done\n"
            kept.append(result.leftovers_kept)
            return time.monotonic() - began_at

        await at_best(answered, below=1.0)
        assert kept == list(range(1, len(kept) + 1))

    async def test_stopped_and_deaf_programs_end_on_time(
        self, attack: Attack, late_s: float
    ) -> None:
        for code in (
            "os.kill(os.getpid(), 19)",
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)",
            "while True: pass",
        ):
            await ended_on_time(attack, code, timeout_s=0.25, late_s=late_s)

    async def test_nobody_who_is_kept_delays_the_end_of_a_command_by_stopping_its_start(
        self, sandbox: LocalSandbox, attack: Attack, late_s: float
    ) -> None:
        """What init forks is a process like any other until it is the program."""

        async def lateness() -> float:
            await attack(STAYS.format("while True: attempt(os.kill, -1, 19)"), keep=True)
            result = await attack("", timeout_s=0.2)
            assert (result.timed_out, result.leftovers_killed) == (True, 1)
            return result.run_s - 0.2

        await at_best(lateness, below=late_s)
        assert await still_works(sandbox)

    async def test_who_kills_what_init_forks_leaves_init_sheltered(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        before = score_of(sandbox.pid)
        kills = "while not os.path.exists('/work/enough'): attempt(os.kill, -1, 9)"
        await attack(STAYS.format(kills), keep=True)
        for _ in range(20):
            assert (await attack("")).signal == 9
            assert score_of(sandbox.pid) == before
        await sandbox.write("enough", b"")
        while (await attack("")).leftovers_kept:
            pass
        assert await still_works(sandbox)

    async def test_a_program_that_is_not_there_leaves_the_kept_alone(
        self, sandbox: LocalSandbox
    ) -> None:
        await sandbox.run(Command(argv=("setsid", "-f", "sleep", "100"), keep=True))
        missing = await sandbox.run(Command(argv=("/no/such/program",)))
        assert (missing.exit_code, missing.start_error) == (127, "No such file or directory")
        nowhere = await sandbox.run(Command(argv=("true",), cwd="/no/such/place"))
        assert "working directory" in nowhere.start_error
        assert (await sandbox.run(Command(argv=("true",)))).leftovers_kept == 1

    async def test_no_lease_on_a_program_delays_its_start_or_end(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Who opens a leased file waits for 45 s: init, which has started it and not yet seen."""
        await sandbox.write("program", b"#!/bin/sh\necho started\n", mode=0o755)
        await attack(
            "import fcntl, signal, time\n"
            "if os.fork() == 0:\n"
            "  signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
            "  leased = attempt(fcntl.fcntl, os.open('/work/program', os.O_RDWR), 1024, 1)\n"
            "  open('/work/held', 'w').write(str(leased)); time.sleep(600)\n"
            + WAIT.format("os.path.exists('/work/held') and os.path.getsize('/work/held')"),
            keep=True,
        )
        assert await sandbox.read("held") == b"EPERM"

    async def test_daemon_cannot_outlive_its_action(self, attack: Attack) -> None:
        result = await attack(
            "if os.fork() == 0:\n  os.setsid()\n"
            "  if os.fork() == 0:\n    os.closerange(0, 99)\n"
            "    import time; time.sleep(0.3); open('/work/late', 'w')\n"
            "  os._exit(0)\n"
            "os.wait()"
        )
        assert result.leftovers_killed == 1
        await asyncio.sleep(0.35)
        late = await attack("print(os.path.exists('/work/late'))")
        assert late.stdout == b"False\n"

    async def test_nobody_outlives_its_action_by_being_another_at_every_look(
        self, sandbox: LocalSandbox
    ) -> None:
        """Each ends when it has forked the next; beside the kept, init has to look who is who."""
        flee = Command(argv=("sh", "-c", "f() { f & exit; }; f & sleep 0.01"))
        num_kept = 0
        for _ in range(60):
            if not num_kept:
                await sandbox.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
            num_kept = (await sandbox.run(flee)).leftovers_kept
            left = [name_of(pid) for pid in processes_below(sandbox.pid)[1:]]
            assert left == ["sleep"] * num_kept

    async def test_nobody_outlives_its_action_as_the_threads_of_a_dead_one(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Its first thread has ended, so it looks dead; beside a kept one, each is looked at."""
        await sandbox.run(Command(argv=("setsid", "-f", "sleep", "100"), keep=True))
        stays = (
            "import threading, time\n"
            "if os.fork() == 0:\n"
            "  os.setsid()\n"
            "  def stay(): open('/work/stays', 'w'); time.sleep(60)\n"
            "  threading.Thread(target=stay).start()\n"
            "  libc.syscall(60, 0)\n" + WAIT.format("os.path.exists('/work/stays')")
        )
        result = await attack(stays)
        assert (result.exit_code, result.leftovers_killed, result.leftovers_kept) == (0, 1, 1)
        kept = await attack(stays, keep=True)
        assert kept.leftovers_kept == 2

    @pytest.mark.parametrize("how", [8, 8 | 32])
    async def test_no_filter_of_its_own_keeps_a_process_from_being_frozen(
        self, sandbox: LocalSandbox, attack: Attack, how: int
    ) -> None:
        """It waits for its parent to say what `getppid` answers, killable only if it may choose."""
        await attack(
            "import struct, time\n"
            "if os.fork() == 0:\n"
            "  ends = (6, 0, 0, 0x7FC00000), (6, 0, 0, 0x7FFF0000)  # ask, allow\n"
            "  lines = (32, 0, 0, 0), (21, 0, 1, 110), *ends\n"
            "  code = b''.join(struct.pack('HBBI', *line) for line in lines)\n"
            "  code = ctypes.create_string_buffer(code)\n"
            "  program = (ctypes.c_uint64 * 2)(4, ctypes.addressof(code))\n"
            f"  listener = call(317, 1, {how}, program)\n"
            "  open('/work/asked', 'w').write(str(listener))\n"
            "  if os.fork() == 0: libc.syscall(110)\n"
            "  if listener != 'EINVAL':\n"
            "    libc.ioctl(listener, 0xC0502100, ctypes.create_string_buffer(80))\n"
            "  open('/work/waits', 'w'); time.sleep(600)\n"
            + WAIT.format("os.path.exists('/work/waits')"),
            keep=True,
        )
        assert (await sandbox.read("asked") == b"EINVAL") == bool(how & 32)
        assert (await attack("print(1)")).stdout == b"1\n"

    async def test_kept_processes_do_nothing_between_actions(
        self, provider: NamespaceProvider, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        """Even one that has the kernel send it SIGCONT, which undoes a stop signal."""
        await attack(
            "import signal, time\n"
            "if os.fork() == 0:\n"
            "  signal.signal(signal.SIGCONT, lambda *_: None)\n"
            "  event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0); timer = ctypes.c_int()\n"
            "  for i in range(1, 80):\n"
            "    at = (ctypes.c_long * 4)(0, 0, 0, i * 10**7)\n"
            "    assert call(222, 1, event, ctypes.byref(timer)) == 0\n"
            "    assert call(223, timer, 0, at, None) == 0\n"
            "  n = 0\n"
            "  fd = os.open('/work/n', os.O_CREAT | os.O_WRONLY)\n"
            "  while True: n += 1; os.pwrite(fd, b'%9d' % n, 0); time.sleep(0.005)\n"
            + WAIT.format("os.path.exists('/work/n') and os.path.getsize('/work/n')"),
            keep=True,
        )

        async def steps() -> int:
            before = int(await sandbox.read("n"))
            await asyncio.sleep(0.3)
            return int(await sandbox.read("n")) - before

        if provider.capabilities.level >= IsolationLevel.CGROUPS:
            await at_best(steps, below=10)  # It goes on for a moment after each answer.
        stopped_at = int(await sandbox.read("n"))
        running = await attack(WAIT.format(f"int(open('/work/n').read()) > {stopped_at} + 10"))
        assert (running.exit_code, running.leftovers_kept) == (0, 1)


class TestCores:
    async def test_a_command_cannot_widen_its_cores(self, attack: Attack) -> None:
        result = await attack(
            "attempt(os.sched_setaffinity, 0, range(64)); print(os.sched_getaffinity(0))",
            cores=(0,),
        )
        assert result.stdout == b"{0}\n"

    @pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
    async def test_cores_follow_resize_and_end_with_the_command(
        self, sandbox: LocalSandbox, attack: Attack
    ) -> None:
        show = "print(sorted(os.sched_getaffinity(0)), flush=True)\n"
        shown = "open('/work/shown', 'w')\n" + WAIT.format("os.path.exists('/work/resized')")
        running = asyncio.create_task(attack(show + shown + show, cores=(0,)))
        assert await written(sandbox, "shown")
        await sandbox.resize((0, 1))
        await sandbox.write("resized", b"")
        assert (await running).stdout == b"[0]\n[0, 1]\n"
        assert (await attack(show)).stdout == b"[0, 1]\n"

    async def test_kept_processes_move_with_the_sandbox(
        self, provider: NamespaceProvider, attack: Attack
    ) -> None:
        await attack(
            "import time\nif os.fork() == 0:\n  while True:\n"
            "    open('/work/next', 'w').write(str(sorted(os.sched_getaffinity(0))))\n"
            "    os.rename('/work/next', '/work/mask')\n"
            "    time.sleep(0.01)\n" + WAIT.format("os.path.exists('/work/mask')"),
            keep=True,
            cores=(0,),
        )
        # A neighbour takes over the cpuset that the kept process was started in.
        neighbour = await provider.create(HostImage())
        hold = Command(argv=("sh", "-c", "touch holds; sleep 600"), cores=(0,), timeout_s=600)
        holding = asyncio.create_task(neighbour.run(hold))
        assert await written(neighbour, "holds")
        moved = await attack(WAIT.format("open('/work/mask').read() == '[1]'"), cores=(1,))
        assert moved.exit_code == 0
        assert not holding.done()
        neighbour.end_command()
        await holding
        await neighbour.close()

    async def test_a_share_of_a_core_is_not_exceeded(
        self, provider: NamespaceProvider, attack: Attack
    ) -> None:
        if provider.capabilities.level < IsolationLevel.CGROUPS:
            pytest.skip("shares need control groups")
        burn = "import time; end = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass"
        quarter = await attack(burn, share=CpuShare(weight_milli=250, limit_milli=250))
        assert quarter.cpu_s < 0.6 * 0.25 + 0.1
        # And the limit ends with its command.
        groups = [Path(line) for line in await asyncio.to_thread(listed, provider)]
        quotas = [q for group in groups for q in group.glob("*/cpu.cfs_quota_us")]
        await attack("pass")
        assert all(q.read_text() == "-1\n" for q in quotas)


def listed(provider: NamespaceProvider) -> list[str]:
    return (provider.run_path / "groups").read_text().splitlines()
