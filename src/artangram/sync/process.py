"""Blocking counterparts of a started process and of a shell; see `sync.client`."""

from collections.abc import Generator
from typing import Self

from artangram.orchestrator.expose import ExposedPort
from artangram.orchestrator.process import SIGTERM, ProcessHandle
from artangram.orchestrator.records import ActionResult
from artangram.orchestrator.shell import ShellHandle, ShellResult
from artangram.sandbox.protocol import Output
from artangram.sync.thread import LoopThread


class SyncProcess:
    """`ProcessHandle` for code that is not async."""

    def __init__(self, process: ProcessHandle, thread: LoopThread) -> None:
        self._process = process
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Sync {self._process!r}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    def __iter__(self) -> Generator[Output, None, None]:
        while (piece := self.read()) is not None:
            yield piece

    def read(self) -> Output | None:
        """See `ProcessHandle.read`."""
        return self._thread.wait(self._process.read())

    def write(self, data: bytes | str) -> None:
        """See `ProcessHandle.write`."""
        self._thread.wait(self._process.write(data))

    def close_stdin(self) -> None:
        """See `ProcessHandle.close_stdin`."""
        self._thread.wait(self._process.close_stdin())

    def resize(self, rows: int, columns: int) -> None:
        """See `ProcessHandle.resize`."""
        self._thread.wait(self._process.resize(rows, columns))

    def signal(self, number: int = SIGTERM) -> None:
        """See `ProcessHandle.signal`."""
        self._thread.wait(self._process.signal(number))

    def kill(self) -> None:
        """See `ProcessHandle.kill`."""
        self._thread.wait(self._process.kill())

    def wait(self) -> ActionResult:
        """See `ProcessHandle.wait`."""
        return self._thread.wait(self._process.wait())


class SyncShell:
    """`ShellHandle` for code that is not async."""

    def __init__(self, shell: ShellHandle, thread: LoopThread) -> None:
        self._shell = shell
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Sync {self._shell!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: str, *, timeout_s: float | None = None) -> ShellResult:
        """See `ShellHandle.run`."""
        return self._thread.wait(self._shell.run(command, timeout_s=timeout_s))

    def close(self) -> None:
        """See `ShellHandle.close`."""
        self._thread.wait(self._shell.close())


class SyncExposedPort:
    """`ExposedPort` for code that is not async."""

    def __init__(self, exposed: ExposedPort, thread: LoopThread) -> None:
        self._exposed = exposed
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Sync {self._exposed!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._exposed.url

    def close(self) -> None:
        """See `ExposedPort.close`."""
        self._thread.wait(self._exposed.close())
