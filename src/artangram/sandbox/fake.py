"""A sandbox in memory, for tests of what is built on sandboxes.

- Obeys the protocol's promises: one command at a time, deadlines, output caps, leftovers.
- Knows a handful of programs (`true`, `false`, `echo`, `cat`, `sleep`, `yes`, `pwd`, `env`,
  `setsid -f`) and those the test registers with `FakeProvider(programs=...)`. One that is started
  beside others reads its stdin from `Console.fed`.
- Starts no process; sleeps on the running event loop, so virtual time works.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from artangram.sandbox.capabilities import Ability, Capabilities, IsolationLevel, Promise
from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.fakeprocess import SIGKILL, FakeProcess
from artangram.sandbox.fakeprograms import PROGRAMS, Console, Program
from artangram.sandbox.fakesnapshots import FakeSnapshots
from artangram.sandbox.offers import check_offered
from artangram.sandbox.process import OnOutput
from artangram.sandbox.protocol import (
    DEFAULT_LIMITS,
    MAX_READ_BYTES,
    Command,
    CommandResult,
    CoreMeter,
    Limits,
    Output,
    Snapshot,
    Source,
)
from artangram.sandbox.snapshot import HELD, SnapshotInfo, SnapshotTerms
from artangram.sandbox.user import BOX, WORK_DIR, SandboxUser

__all__ = ["Console", "FakeProvider", "FakeSandbox", "Program"]

Ending = CommandResult | SandboxError
OnEnd = Callable[[Ending], None]


class _Underway:
    """The command that runs; however it ends, `on_end` is called once."""

    __slots__ = ("began_at", "console", "is_killed", "on_end", "program", "timed_out", "timer")

    def __init__(self, console: Console, on_end: OnEnd, *, began_at: float) -> None:
        self.console = console
        self.on_end = on_end
        self.began_at = began_at
        self.program: asyncio.Task[int] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True
        if self.program is not None:
            self.program.cancel()

    def time_out(self) -> None:
        self.timed_out = True
        self.kill()


class FakeSandbox:
    """One fake box: a dict of files and the names of programs."""

    def __init__(
        self, provider: FakeProvider, name: str, files: dict[str, bytes], *, limits: Limits
    ) -> None:
        self.name = name
        self.limits = limits
        self.cores: tuple[int, ...] = ()
        self.is_frozen = False
        self._provider = provider
        self._files = files
        self._kept = 0
        self._meter = CoreMeter(0, asked_at=0.0, now=0.0)
        self._alive = True
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._current: _Underway | None = None
        self._freed: asyncio.Future[None] | None = None
        self._started: list[FakeProcess] = []

    def __repr__(self) -> str:
        return f"<FakeSandbox {self.name}: {len(self._files)} files>"

    @property
    def is_alive(self) -> bool:
        return self._alive

    @property
    def has_kept(self) -> bool:
        return self._kept > 0

    async def run(self, command: Command) -> CommandResult:
        self._check_alive()
        asked_at = self._loop.time()
        async with self._turn:
            if self._current is not None:  # a caller began it without waiting for a turn
                self._freed = self._loop.create_future()
                await self._freed
            self._check_alive()
            over: asyncio.Future[Ending] = self._loop.create_future()
            self._start(command, asked_at=asked_at, on_end=over.set_result)
            try:
                ending = await asyncio.shield(over)
            except asyncio.CancelledError:
                self.end_command()
                await asyncio.wait({over})
                raise
        if isinstance(ending, SandboxError):
            raise ending
        return ending

    def begin(self, command: Command, on_end: OnEnd) -> bool:
        if not self._alive or self._current is not None or self._turn.locked() or command.keep:
            return False
        self._start(command, asked_at=self._loop.time(), on_end=on_end)
        return True

    def end_command(self) -> None:
        if self._current is not None:
            self._current.kill()

    def _start(self, command: Command, *, asked_at: float, on_end: OnEnd) -> None:
        self.limits.admit(command)
        now, console = self._loop.time(), Console(command, self._files)
        self.cores = command.cores
        self._meter = CoreMeter(len(command.cores), asked_at=asked_at, now=now)
        self._current = current = _Underway(console, on_end, began_at=now)
        program = self._provider.programs.get(posixpath.basename(command.argv[0]))
        if program is None:
            result = CommandResult(exit_code=127, start_error=os.strerror(errno.ENOENT))
            self._loop.call_soon(self._end, result)
            return
        try:
            started = program(console, command.argv)
        except BaseException:
            self._current = None
            raise
        if isinstance(started, int):
            self._loop.call_soon(self._finish, started)
            return
        current.program = self._loop.create_task(started)
        current.program.add_done_callback(self._on_program_over)
        current.timer = self._loop.call_later(command.timeout_s, current.time_out)

    def _on_program_over(self, program: asyncio.Task[int]) -> None:
        assert self._current is not None
        assert self._current.timer is not None
        self._current.timer.cancel()
        error = None if program.cancelled() else program.exception()
        if error is not None:
            self._end(SandboxError(f"a fake program raised {error!r}"))
        else:
            self._finish(None if program.cancelled() else program.result())

    def _finish(self, code: int | None) -> None:
        """`None`: it was killed."""
        assert self._current is not None
        current, now = self._current, self._loop.time()
        self._meter.stop(now)
        killed = code is None or current.is_killed
        run_s = now - current.began_at
        self._end(self._result(current, None if killed else code, run_s=run_s))

    def _end(self, ending: Ending) -> None:
        current, self._current = self._current, None
        assert current is not None
        self.cores = ()
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)
        current.on_end(ending if self._alive else SandboxGone(f"{self.name} is closed"))

    def _result(self, current: _Underway, code: int | None, *, run_s: float) -> CommandResult:
        console = current.console
        kept = console.leftovers if console.command.keep and code is not None else 0
        self._kept = 0 if code is None else self._kept + kept
        return CommandResult(
            exit_code=128 + SIGKILL if code is None else code,
            signal=SIGKILL if code is None else 0,
            timed_out=current.timed_out,
            run_s=run_s,
            lease_wait_s=self._meter.lease_wait_s,
            core_s=self._meter.core_s,
            leftovers_killed=console.leftovers - kept,
            leftovers_kept=self._kept,
            truncated_bytes=console.truncated_bytes,
            stdout=bytes(console.stdout),
            stderr=bytes(console.stderr),
        )

    async def stream(self, command: Command) -> AsyncIterator[Output | CommandResult]:
        result = await self.run(command)
        if result.stdout:
            yield Output(channel="stdout", data=result.stdout)
        if result.stderr:
            yield Output(channel="stderr", data=result.stderr)
        yield result

    async def start(self, command: Command, on_output: OnOutput) -> FakeProcess:
        self._check_alive()
        program = self._provider.programs.get(posixpath.basename(command.argv[0]))
        console = Console(command, self._files, on_output=on_output)
        process = FakeProcess(console, program, pid=len(self._started) + 2)
        self._started.append(process)
        await asyncio.sleep(0)  # its program begins
        return process

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        self._check_alive()
        where = posixpath.normpath(posixpath.join(WORK_DIR, path))
        if where not in self._files:
            is_directory = any(name.startswith(where + "/") for name in self._files)
            code = errno.EISDIR if is_directory else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        if len(self._files[where]) > max_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return self._files[where]

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._check_alive()
        self._files[posixpath.normpath(posixpath.join(WORK_DIR, path))] = bytes(data)

    async def resize(self, cores: tuple[int, ...]) -> None:
        self._check_alive()
        if not cores:
            raise ValueError("a running command needs at least one core")
        self.cores = cores
        self._meter.resize(len(cores), now=self._loop.time())

    async def freeze(self) -> None:
        self._check_alive()
        self.is_frozen = True

    async def thaw(self) -> None:
        self._check_alive()
        self.is_frozen = False

    async def snapshot(self, terms: SnapshotTerms = HELD) -> Snapshot:
        self._check_alive()
        return self._provider.remember(self._files, terms)

    async def close(self) -> None:
        self._alive = False
        self.end_command()
        for process in self._started:
            process.end()
        self._provider.live.discard(self)

    def _check_alive(self) -> None:
        if not self._alive:
            raise SandboxGone(f"{self.name} is closed")


class FakeProvider:
    """Makes fake sandboxes and counts them in `live`."""

    def __init__(
        self,
        *,
        programs: Mapping[str, Program] | None = None,
        kind: str = "fake",
        abilities: frozenset[Ability] = frozenset(Ability),
    ) -> None:
        self.kind = kind
        self.programs: dict[str, Program] = PROGRAMS | dict(programs or {})
        self.live: set[FakeSandbox] = set()
        self.capabilities = Capabilities(
            level=IsolationLevel.PROCESS,
            promises=frozenset({Promise.HIDDEN_FILES}),
            abilities=abilities,
        )
        self._snapshots = FakeSnapshots()
        self._num_made = 0
        self._closed = False

    async def create(
        self, source: Source, *, limits: Limits = DEFAULT_LIMITS, user: SandboxUser = BOX
    ) -> FakeSandbox:
        if self._closed:
            raise SandboxGone("the provider is closed")
        check_offered(self, source, limits, user)
        files: dict[str, bytes] = {}
        if isinstance(source, Snapshot):
            files = self._snapshots.used(source)
        self._num_made += 1
        sandbox = FakeSandbox(self, f"fake-{self._num_made}", files, limits=limits)
        self.live.add(sandbox)
        return sandbox

    def remember(self, files: Mapping[str, bytes], terms: SnapshotTerms) -> Snapshot:
        return self._snapshots.put(files, terms)

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return self._snapshots.listed()

    async def forget(self, snapshot: Snapshot) -> bool:
        return self._snapshots.forget(snapshot)

    def archive(self, snapshot: Snapshot) -> Path:
        return self._snapshots.archive(snapshot)

    async def pack(self, snapshot: Snapshot) -> None:
        self._snapshots.pack(snapshot)

    async def adopt(self, snapshot: Snapshot) -> None:
        self._snapshots.adopt(snapshot)

    async def close(self) -> None:
        self._closed = True
        self._snapshots.close()
        for sandbox in list(self.live):
            await sandbox.close()
