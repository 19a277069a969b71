"""The contract of every sandbox: a few verbs, and the records that go in and come out.

- `run` always answers with a `CommandResult`, however the program ended; it raises only
  `SandboxError` (the place failed) or `ValueError` (the caller did). Limits that no sandbox could
  keep are `BadInput` as soon as they are written down.
- At most one `run` goes on in a sandbox at a time; a second one waits. `start` starts commands
  beside it and beside each other. `read`, `write` and `resize` work meanwhile.
- When `run` returns, every process it started is gone, unless the command said `keep`. A command
  that is ended early, by its time limit or by its caller, takes the kept ones along.
- When `close` returns, nothing of the sandbox is left.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from artangram.core.errors import BadInput
from artangram.sandbox.capabilities import Capabilities
from artangram.sandbox.cpushare import CpuShare
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.network import Network, check_network
from artangram.sandbox.process import OnOutput, SandboxProcess, TerminalSize
from artangram.sandbox.snapshot import HELD, SnapshotInfo, SnapshotTerms
from artangram.sandbox.user import BOX, WORK_DIR, SandboxUser

PROGRAMS_DIR = "/run/bin"
"""`python` is here in sandboxes whose image has `python3` alone."""
DEFAULT_PATH = f"/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:{PROGRAMS_DIR}"
MAX_READ_BYTES = 64 << 20

LEAST_MEMORY_MB = 4
"""Init and `true` together take 1 to 1.7; with 1 not even init starts."""
LEAST_ON_DISK_MB = 16
LEAST_INODES = 64
"""The files that every sandbox is made with are about 30."""
MOST_PROCESSES = (1 << 22) - 1
"""The kernel has no more numbers for them, init's included."""
MOST_WORDS_BYTES = 6 << 20
"""Of a program's argv and environment together; init holds them in the sandbox's memory."""
MOST_OF_ANYTHING = 1 << 40
"""Megabytes or files: no machine has as many, and not much further counters wrap around."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandbox may hold for its whole life.

    Files live in memory and count as memory, unless `storage` is "disk".
    `network` and `private`: see `sandbox.network`; the operator says `private`, no caller.
    """

    memory_mb: int = 512
    disk_mb: int = 256
    inodes: int = 65536
    processes: int = 256
    network: Network = False
    private: tuple[str, ...] = ()
    storage: Literal["memory", "disk"] = "memory"

    def __post_init__(self) -> None:
        _check("memory_mb", self.memory_mb, LEAST_MEMORY_MB, MOST_OF_ANYTHING)
        _check("disk_mb", self.disk_mb, 1, MOST_OF_ANYTHING)
        _check("inodes", self.inodes, LEAST_INODES, MOST_OF_ANYTHING)
        _check("processes", self.processes, 1, MOST_PROCESSES)
        check_network(self.network)
        if self.storage == "disk" and self.disk_mb < LEAST_ON_DISK_MB:
            problem = f"{self.disk_mb} is too little for a file system"
            raise BadInput("disk_mb", problem, f"give {LEAST_ON_DISK_MB} or more")
        if self.storage == "memory" and self.disk_mb > self.memory_mb:
            problem = f"{self.disk_mb} is above memory_mb, and files live in memory"
            fix = f"give {self.memory_mb} at most, or storage='disk'"
            raise BadInput("disk_mb", problem, fix)

    @classmethod
    def sized(
        cls,
        memory_mb: int,
        *,
        disk_mb: int | None,
        processes: int,
        network: Network,
        storage: Literal["memory", "disk"] = "memory",
    ) -> Limits:
        """Half of `memory_mb` may be in files and a quarter in inodes, up to the usual limits.

        So a program that fills both leaves some memory to run in; an inode takes up to 2 KB.
        """
        _check("memory_mb", memory_mb, LEAST_MEMORY_MB, MOST_OF_ANYTHING)
        if disk_mb is None:
            disk_mb = 4096 if storage == "disk" else min(256, memory_mb // 2)
        inodes = max(1024, disk_mb * 64) if storage == "disk" else min(65536, memory_mb * 128)
        return cls(
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            inodes=inodes,
            storage=storage,
            processes=processes,
            network=network,
        )

    def admit(self, command: Command) -> None:
        """Raises `BadInput` if one command may use more than its whole sandbox."""
        for field in ("memory_mb", "disk_mb", "processes"):
            wanted, most = getattr(command, field), getattr(self, field)
            if wanted > most:
                problem = f"{wanted} is more than its sandbox may use"
                raise BadInput(field, problem, f"give {most} at most, or open it with more")


def _check(field: str, value: int, least: int, most: int) -> None:
    if type(value) is not int:
        raise BadInput(field, f"{value!r} is not a whole number", f"give {least} or more")
    if value < least:
        raise BadInput(field, f"{value} is too little for any sandbox", f"give {least} or more")
    if value > most:
        raise BadInput(field, f"{value} is more than a kernel can count", f"give {most} at most")


DEFAULT_LIMITS = Limits()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One argv in a sandbox, with the limits of this action alone.

    `processes`, `memory_mb` and `disk_mb` of 0 mean: those of the sandbox. `disk_mb` is for all
    files of the sandbox at level CGROUPS, and for each file below it. Empty `cores` means: any
    core. `share` is for sandboxes that contend for the same cores, at level CGROUPS only.

    With `parallel` it is for `Sandbox.start` and may not have limits of its own; `terminal` gives
    it a terminal of that size.
    """

    argv: tuple[str, ...]
    environ: dict[str, str] = {}
    cwd: str = WORK_DIR
    stdin: bytes = b""
    timeout_s: float = 60.0
    output_bytes: int = 1 << 20
    processes: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    keep: bool = False
    cores: tuple[int, ...] = ()
    share: CpuShare | None = None
    parallel: bool = False
    terminal: TerminalSize | None = None

    @property
    def has_own_limits(self) -> bool:
        """Is it to have less than its sandbox?"""
        return bool(self.memory_mb or self.disk_mb or self.processes)

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise BadInput("argv", "names no program", "give the program first, then its arguments")
        if not 0 < self.timeout_s < math.inf:
            problem = f"{self.timeout_s!r} is not a time limit"
            raise BadInput("timeout_s", problem, "give seconds, above 0")
        if self.output_bytes < 0:
            raise BadInput("output_bytes", f"{self.output_bytes} is negative", "give 0 or more")
        if self.processes:
            _check("processes", self.processes, 1, MOST_PROCESSES)
        if self.memory_mb:
            _check("memory_mb", self.memory_mb, LEAST_MEMORY_MB, MOST_OF_ANYTHING)
        if self.disk_mb:
            _check("disk_mb", self.disk_mb, 1, MOST_OF_ANYTHING)
        if self.parallel and (self.has_own_limits or self.keep or self.stdin):
            problem = "limits, `keep` and `stdin` are not for a process that is started"
            raise BadInput("parallel", problem, "limit its trajectory, and write to its stdin")
        texts = "".join((*self.argv, self.cwd, *self.environ, *self.environ.values()))
        if "\0" in texts:
            raise BadInput("argv, cwd or environ", "contains a NUL byte", "remove it")
        if len(texts) > MOST_WORDS_BYTES:
            problem = "is more than any kernel gives to a program"
            raise BadInput("argv or environ", problem, "write it to a file, or give it as stdin")
        _check_names(self.environ)


def check_environ(environ: dict[str, str]) -> None:
    """Raises `BadInput` for variables that no program could be given."""
    _check_names(environ)
    texts = "".join((*environ, *environ.values()))
    if "\0" in texts or len(texts) > MOST_WORDS_BYTES:
        raise BadInput("environ", "has a NUL byte or is too long", "give less")


def _check_names(environ: dict[str, str]) -> None:
    if "" in environ or "=" in "".join(environ):
        raise BadInput("environ", "has a name that is empty or has a '='", "give NAME: VALUE")


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `exit_code` is 128 + `signal` when a signal ended it.

    126 and 127 with `start_error` set mean that the program never started. `lease_wait_s` lasts
    from `run` until the command had its turn and its cores; `core_s` is cores held, times how long.
    """

    exit_code: int
    signal: int = 0
    timed_out: bool = False
    out_of_memory: bool = False
    start_error: str = ""
    cpu_s: float = 0.0
    run_s: float = 0.0
    lease_wait_s: float = 0.0
    core_s: float = 0.0
    peak_memory_bytes: int = 0
    leftovers_killed: int = 0
    leftovers_kept: int = 0
    truncated_bytes: int = 0
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


class CoreMeter:
    """How long a command waited for its cores, and how much of them it had."""

    def __init__(self, num_cores: int, *, asked_at: float, now: float) -> None:
        self.lease_wait_s = now - asked_at
        self.core_s = 0.0
        self._num_cores = num_cores
        self._since = now

    def resize(self, num_cores: int, *, now: float) -> None:
        self.stop(now)
        self._num_cores = num_cores

    def stop(self, now: float) -> None:
        self.core_s += self._num_cores * (now - self._since)
        self._since = now


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a running command printed, in order per channel."""

    channel: Literal["stdout", "stderr"]
    data: bytes


class HostImage(msgspec.Struct, frozen=True, kw_only=True, tag="host"):
    """The programs of this machine, read-only: `/usr` and friends, a made-up `/etc`, no homes.

    `also` names more directories to show, for instance where an interpreter is installed. Without
    `links`, paths that have a symbolic link in them when they are used are refused.
    """

    also: tuple[str, ...] = ()
    links: bool = True


class DirectoryImage(msgspec.Struct, frozen=True, kw_only=True, tag="directory"):
    """A root file system already unpacked in a directory; never written to.

    With `own`, the sandbox's user owns what root owns in the image. `links`: see `HostImage`.
    """

    path: str
    own: bool = True
    links: bool = True


class TarImage(msgspec.Struct, frozen=True, kw_only=True, tag="tar"):
    """A root file system, `docker save` archive or OCI layout as a tar file; see the others."""

    path: str
    own: bool = True
    links: bool = True


class EngineImage(msgspec.Struct, frozen=True, kw_only=True, tag="engine"):
    """An image of a container engine, by name or digest. Only the container provider takes it.

    With `pull`, the engine fetches what it does not have.
    """

    name: str
    pull: bool = False


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """The files of a sandbox at one moment, from which siblings start; `node` has it."""

    name: str
    node: str = ""
    provider: str = ""
    """The kind that made it, if that is not the usual one of its node."""


Image = HostImage | DirectoryImage | TarImage | EngineImage
Source = Image | Snapshot


class Sandbox(Protocol):
    """A place where untrusted commands run. It keeps files between commands, and no cores."""

    @property
    def name(self) -> str: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def has_kept(self) -> bool:
        """Are there processes that a command left to be kept, as far as the last one told?"""
        ...

    async def run(self, command: Command) -> CommandResult: ...

    def begin(
        self, command: Command, on_end: Callable[[CommandResult | SandboxError], None]
    ) -> bool:
        """As `run`, for callers without a task: `on_end` is called later, with how it ended.

        False if it cannot begin at this very moment: then nothing has happened, and `run` waits
        until it can.
        """
        ...

    def end_command(self) -> None:
        """End early what was begun; its `on_end` is told when nothing of it is left."""
        ...

    def stream(self, command: Command) -> AsyncIterator[Output | CommandResult]:
        """Yield output as it comes and the result last. A slow reader slows the program."""
        ...

    async def start(self, command: Command, on_output: OnOutput) -> SandboxProcess:
        """Start a parallel command; returns when its program runs, or could not be started.

        `on_output` hears what it prints. Several run at once, beside the one of `run`.
        """
        ...

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """The bytes of a regular file; `OSError` as the box's own user would get it."""
        ...

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Replace a file's bytes, making missing directories."""
        ...

    async def resize(self, cores: tuple[int, ...]) -> None:
        """Give the running command exactly these cores, now. Ends with the command."""
        ...

    async def freeze(self) -> None: ...

    async def thaw(self) -> None: ...

    async def snapshot(self, terms: SnapshotTerms = HELD) -> Snapshot: ...

    async def close(self) -> None: ...


class SandboxProvider(Protocol):
    """Makes sandboxes of one kind. Closing it ends all of them."""

    @property
    def kind(self) -> str:
        """What trajectories call it: "namespace", "container", "plain", "fake"."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def create(
        self, source: Source, *, limits: Limits = DEFAULT_LIMITS, user: SandboxUser = BOX
    ) -> Sandbox: ...

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Those that have a name or a time to go."""
        ...

    async def forget(self, snapshot: Snapshot) -> bool:
        """Sandboxes started from it keep their files. False if there is no such snapshot."""
        ...

    def archive(self, snapshot: Snapshot) -> Path:
        """Where it lies as one file, once it is packed or has come."""
        ...

    async def pack(self, snapshot: Snapshot) -> None:
        """Write its files to its archive. Raises `SandboxError`."""
        ...

    async def adopt(self, snapshot: Snapshot) -> None:
        """Have from now on what its archive holds. Raises `SandboxError`."""
        ...

    async def close(self) -> None: ...
