"""One trajectory as its user holds it: commands, processes, files, snapshots.

It is the same embedded and over HTTP; only the `Transport` differs. What a command may leave out
(directory, environment) its trajectory has said, and the orchestrator fills in.
"""

import asyncio
import errno
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Self, Unpack

from artangram.core.errors import BadInput
from artangram.core.ids import TrajectoryId
from artangram.orchestrator import files
from artangram.orchestrator.arguments import (
    FileRead,
    FileWrite,
    as_bytes,
    as_record,
    as_text,
    run_request,
    start_request,
)
from artangram.orchestrator.expose import ExposedPort, expose
from artangram.orchestrator.files import FileStat
from artangram.orchestrator.options import RunOptions, StartOptions
from artangram.orchestrator.process import KEPT_BYTES, ProcessHandle, check_kept
from artangram.orchestrator.records import ActionResult, Opening
from artangram.orchestrator.shell import PROGRAM, ShellHandle
from artangram.orchestrator.transfer import download, upload
from artangram.orchestrator.transport import Transport
from artangram.sandbox.protocol import MAX_READ_BYTES, Output, Snapshot
from artangram.sandbox.snapshot import SnapshotTerms


class TrajectoryHandle:
    """One attempt at a problem: a sandbox that keeps its files between commands.

    It holds cores only while a command runs. `run` and `stream` run one command at a time, and
    further ones wait; `start` starts processes beside them.
    """

    def __init__(self, backend: Transport, opening: Opening, *, is_attached: bool = False) -> None:
        self._backend = backend
        self._is_attached = is_attached
        self._opening = opening
        #: A sandbox runs one command at a time: the next one waits here, without cores.
        self._turn = asyncio.Lock()
        self._queued_s = 0.0
        self._started: list[ProcessHandle] = []

    def __repr__(self) -> str:
        return f"<Trajectory {self.id}>"

    @property
    def id(self) -> TrajectoryId:
        return self._opening.trajectory

    @property
    def queued_s(self) -> float:
        """Seconds that its actions have waited for resources, summed over all of them.

        Calls that name the trajectory count, too. Subtract this when you limit working time.
        """
        now = self._backend.queued_s(self.id)
        if now is not None:
            self._queued_s = now
        return self._queued_s

    async def __aenter__(self) -> Self:
        return self if self._is_attached else await self.open()

    async def __aexit__(self, *_: object) -> None:
        if not self._is_attached:
            await self.close()

    async def open(self) -> Self:
        """Open it without an `async with` block; then `close` ends it."""
        try:
            await self._backend.open(self._opening)
        except asyncio.CancelledError:
            await self.close()  # It may be open, and its owner will not close it.
            raise
        return self

    async def close(self) -> None:
        """End it: what still runs is stopped, its files are removed."""
        self._queued_s = self.queued_s  # After the end only this object knows it.
        await self._backend.close(self.id)
        started, self._started = self._started, []
        for process in started:
            await process.aclose()

    async def run(self, argv: Sequence[str], **options: Unpack[RunOptions]) -> ActionResult:
        """Run a command and wait for its end; `{units}` in it becomes the number of its cores.

        The command's own failure is in the result. `RunOptions` describes the keywords.
        """
        request = run_request(self._opening, argv, options)
        await self._turn.acquire()
        try:
            return await self._backend.run(request)
        finally:
            self._turn.release()

    async def stream(
        self, argv: Sequence[str], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Output | ActionResult, None]:
        """Run a command; gives what it prints as it comes, and its result last.

        Leaving the iteration early stops the command, unless it has a `key`.
        """
        request = run_request(self._opening, argv, options)
        async with self._turn, aclosing(self._backend.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def start(
        self,
        argv: Sequence[str],
        *,
        output_bytes: int = KEPT_BYTES,
        lossless: bool = False,
        **options: Unpack[StartOptions],
    ) -> ProcessHandle:
        """Start a program beside what else runs here; returns when it runs.

        It is an action with a lease of its own, which it holds until it ends or the trajectory is
        closed. `StartOptions` describes the keywords.

        - `output_bytes`: how much unread output is kept. Older output is dropped and counted.
        - `lossless`: let the program wait for its reader instead of dropping its output.
        """
        check_kept(output_bytes)
        pieces = self._backend.start(start_request(self._opening, argv, options))
        process = ProcessHandle(self._backend, pieces, output_bytes=output_bytes, lossless=lossless)
        try:
            await process.begun()
        except asyncio.CancelledError:
            await process.abandon()
            raise
        self._started = [one for one in self._started if not one.is_over]
        self._started.append(process)
        return process

    async def shell(self, **options: Unpack[StartOptions]) -> ShellHandle:
        """Open a bash that keeps its directory and variables from one command to the next."""
        if options.get("terminal") is not None:
            fix = "start a shell with `start` and drive its terminal"
            raise BadInput("terminal", "a shell that is asked for results has none", fix)
        return ShellHandle(await self.start(PROGRAM, lossless=True, **options))

    async def write(self, path: str, data: bytes | str) -> None:
        """Replace a file's content; missing directories are made.

        More than 64 MiB go in pieces, and need `cat` in the image.
        """
        body = as_bytes("data", data) if isinstance(data, str) else data
        given = as_record(FileWrite, {"path": path, "data": body})
        if len(given.data) > MAX_READ_BYTES:
            await files.write_whole(self._piped, given.path, given.data)
        else:
            await self._backend.write(self.id, given.path, data=given.data)

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """A file's content. Raises `OSError` as `open` would.

        A larger `max_bytes` than the 64 MiB of the default reads larger files, in pieces.
        """
        given = as_record(FileRead, {"path": path, "max_bytes": max_bytes})
        at_once = min(given.max_bytes, MAX_READ_BYTES)
        try:
            return await self._backend.read(self.id, given.path, max_bytes=at_once)
        except OSError as error:
            if error.errno != errno.EFBIG or at_once == given.max_bytes:
                raise
        return await files.read_whole(self._piped, given.path, max_bytes=given.max_bytes)

    async def list(self, path: str = ".") -> Sequence[FileStat]:
        """What is in a directory, sorted by name. Raises `OSError` as `os.scandir` would."""
        return await files.list_directory(self._piped, as_text("path", path))

    async def stat(self, path: str) -> FileStat:
        """What is at a path; a link is not followed. Raises `OSError` as `os.lstat` would."""
        return await files.stat_file(self._piped, as_text("path", path))

    async def exists(self, path: str) -> bool:
        """Is there a file, a directory or a link?"""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def mkdir(self, path: str) -> None:
        """Make a directory and its parents; one that exists is left as it is."""
        await files.make_directory(self._piped, as_text("path", path))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory; `recursive`: all that is in it, too."""
        await files.remove(self._piped, as_text("path", path), recursive=recursive)

    async def move(self, source: str, target: str) -> None:
        """Give a file or directory another name; a file that has it is replaced."""
        await files.move(self._piped, as_text("source", source), as_text("target", target))

    async def upload(self, source: str | PathLike[str], target: str = ".") -> None:
        """Copy a file, or what is in a directory, of this machine into `target`, a directory.

        It goes in pieces, so its size has no limit but that of the sandbox. Needs `tar` there.
        Raises `OSError` with what `tar` said.
        """
        await upload(self._piped, Path(source), as_text("target", target))

    async def download(self, source: str, target: str | PathLike[str]) -> None:
        """Copy a file, or what is in a directory, of the sandbox into `target`, a directory here.

        Names and links that lead out of `target` are refused with `OSError`.
        """
        await download(self._piped, as_text("source", source), Path(target))

    async def expose(self, port: int) -> ExposedPort:
        """Make a server on a loopback port of the sandbox reach this machine; its `url` is here.

        It is a process with a lease until it is closed, and needs `python3` in the image.
        """
        return await expose(partial(self.start, lossless=True, kind="ports/expose"), port)

    async def _piped(self, argv: Sequence[str]) -> ProcessHandle:
        return await self.start(argv, lossless=True, kind="files/transfer")

    async def snapshot(self, name: str = "", *, keep_s: float | None = None) -> Snapshot:
        """Its files at this moment, as the `source` of other trajectories.

        - `name`: it stays until `Client.forget`, over restarts of a service, and can be named by
          other clients: `source=Snapshot(name=...)`. A name that is taken moves to this one.
        - `keep_s`: it is forgotten when no sandbox has used it for so long. Default without a
          name: a day.
        """
        given = {"name": as_text("name", name), "keep_s": keep_s}
        terms = as_record(SnapshotTerms, given)
        return await self._backend.snapshot(self.id, terms)
