"""Files of a trajectory's sandbox beyond one `read` or `write`: what there is, and large ones.

- Each is a program in the sandbox with the rights of its user (`stat`, `find`, `rm`, `mkdir`, `mv`,
  `cat`), so one action; embedded and over HTTP alike.
- What a program says is told as the `OSError` that Python would raise for it.
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Literal
from uuid import uuid4

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.process import ProcessHandle
from artangram.orchestrator.records import ActionResult

PIECE_BYTES = 1 << 20
MOST_SAID = 4096

Start = Callable[[list[str]], Awaitable[ProcessHandle]]
"""Starts a program whose output is not dropped."""
Kind = Literal["file", "directory", "link", "other"]

_ABOUT = "%f %s %Y %u %n"
_CODES = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST,
    errno.ENOTEMPTY, errno.ENOSPC, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG,
)  # fmt: skip
_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
}
_LIST = """
case "$1" in -*) set -- "./$1" "$2";; esac
test -d "$1/." || exec stat -- "$1/."
exec find "$1/" -mindepth 1 -maxdepth 1 -exec stat -c "$2" {} +
"""
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && exec cat > "$1"'
_REMOVE = 'if test -d "$1" && ! test -L "$1"; then exec rmdir -- "$1"; fi; exec rm -- "$1"'


class FileStat(Struct, frozen=True, kw_only=True):
    """One file, directory or link of a sandbox; a link is not followed."""

    name: str
    kind: Kind
    size_bytes: int
    mode: int
    """Its permissions, as in `0o644`."""
    modified_at: float
    uid: int

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


async def list_directory(start: Start, path: str) -> list[FileStat]:
    """What is in a directory, sorted by name."""
    word = uuid4().hex  # A name may have any character but a slash, line ends included.
    argv = ["sh", "-c", _LIST, "sh", path, f"{word} {_ABOUT}"]
    told = (await _output(start, argv, path)).decode(errors="surrogateescape")
    found = [_stat_in(line.removesuffix("\n")) for line in told.split(f"{word} ")[1:]]
    return sorted(found, key=lambda one: one.name)


async def stat_file(start: Start, path: str) -> FileStat:
    """What is at a path."""
    told = await _output(start, ["stat", "-c", _ABOUT, "--", path], path)
    return _stat_in(told.decode(errors="surrogateescape").removesuffix("\n"))


async def remove(start: Start, path: str, *, recursive: bool) -> None:
    """Remove a file, a link or an empty directory; `recursive`: all that is in it, too."""
    argv = ["rm", "-r", "--", path] if recursive else ["sh", "-c", _REMOVE, "sh", path]
    await _output(start, argv, path)


async def make_directory(start: Start, path: str) -> None:
    """Make a directory and its parents; one that exists is left as it is."""
    await _output(start, ["mkdir", "-p", "--", path], path)


async def move(start: Start, source: str, target: str) -> None:
    """Give a file or directory another name; a file there is replaced."""
    await _output(start, ["mv", "-f", "-T", "--", source, target], source)


async def read_whole(start: Start, path: str, *, max_bytes: int) -> bytes:
    """A file of any size. `OSError` (`EFBIG`) beyond `max_bytes`."""
    return await _output(start, ["cat", "--", path], path, max_bytes=max_bytes)


async def write_whole(start: Start, path: str, data: bytes) -> None:
    """Replace a file by data of any size; missing directories are made."""
    process = await start(["sh", "-c", _WRITE, "sh", path])
    view = memoryview(data)
    try:
        for at in range(0, len(data), PIECE_BYTES):
            await process.write(bytes(view[at : at + PIECE_BYTES]))
        await process.close_stdin()
    except BrokenPipeError:
        pass  # It has ended, and says why.
    except BaseException:
        await process.kill()
        raise
    result = await process.wait()
    _check(result, result.stderr, path)


async def _output(
    start: Start, argv: list[str], path: str, *, max_bytes: int | None = None
) -> bytes:
    process = await start(argv)
    printed, said = bytearray(), bytearray()
    try:
        async for piece in process:
            if piece.channel == "stdout":
                printed += piece.data
            elif len(said) < MOST_SAID:
                said += piece.data
            if max_bytes is not None and len(printed) > max_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    except BaseException:
        await process.kill()
        raise
    _check(await process.wait(), said.decode(errors="replace"), path)
    return bytes(printed)


def _check(result: ActionResult, said: str, path: str) -> None:
    """Raises what a result means for a caller that wanted a file."""
    if result.ok:
        return
    if result.exit_code is None or result.outcome is Outcome.INFRA_FAILED:
        raise InfraFailed(f"{path}: {result.reason}")
    if result.start_error:
        raise OSError(errno.ENOSYS, f"the sandbox lacks the program: {result.reason}", path)
    words = said.strip()
    for code in _CODES:
        if os.strerror(code) in words:
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EIO, words or result.reason, path)


def _stat_in(line: str) -> FileStat:
    mode_hex, size, modified, uid, name = line.split(" ", 4)
    mode = int(mode_hex, 16)
    return FileStat(
        name=os.path.basename(name.rstrip("/")) or name,
        kind=_KINDS.get(stat.S_IFMT(mode), "other"),
        size_bytes=int(size),
        mode=stat.S_IMODE(mode),
        modified_at=float(modified),
        uid=int(uid),
    )
