"""A server of our own: started by its command, watched, and ended with everything it started.

- The command leads a process group; `end` asks all of it to go, then makes it, and returns when
  the group is empty, for only then is the memory free. If we die first, it gets SIGTERM.
- It is ready when it answers 200 at `ready`. One that ends before that is `InfraFailed`, with the
  last of what it said. All of that is added to the file `log`, if there is one.
"""

import asyncio
import os
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import aiohttp
from msgspec import Struct, structs

from artangram.aio import uncancelled
from artangram.core.errors import InfraFailed

ENDS_WITHIN_S = 10.0
"""After being asked; then it is killed."""
_LOOK_S = 0.1
_SHOWN_BYTES = 2000


class ServerCommand(Struct, frozen=True, kw_only=True):
    """How a server is started. `{port}` and other names in braces are filled in."""

    argv: tuple[str, ...]
    environ: dict[str, str] = {}
    ready: str = "/health"
    starts_within_s: float = 600.0
    log: str = ""

    def filled(self, names: Mapping[str, object]) -> "ServerCommand":
        """With what `names` says; braces around anything else stay, as in JSON."""
        environ = {key: _filled(value, names) for key, value in self.environ.items()}
        argv = tuple(_filled(word, names) for word in self.argv)
        return structs.replace(self, argv=argv, environ=environ)


class StartedServer:
    """A server that answers. Made by `started`."""

    def __init__(self, process: Process, url: str, log: IO[bytes]) -> None:
        self.url = url
        self.pid = process.pid
        self._process = process
        self._log = log
        self.ended = asyncio.create_task(self._ended())
        """Done when it is gone, with how that came."""

    def __repr__(self) -> str:
        return f"<StartedServer {self.pid} at {self.url}>"

    async def end(self) -> None:
        """Return when it and all it started are gone. Ending twice is ending once."""
        if not self.ended.done():  # Else its number may be another's by now.
            await _gone(self.pid)
        await asyncio.wait({self.ended})

    async def _ended(self) -> str:
        code = await self._process.wait()
        said = f"its server ended with {code}: {_last_words(self._log)}"
        self._log.close()
        await _gone(self.pid)  # What it started may outlive it.
        return said


async def started(command: ServerCommand, *, names: Mapping[str, object]) -> StartedServer:
    """Start a server on a free port and wait until it is ready."""
    port = free_port()
    command = command.filled({**names, "port": port})
    log = _opened(command.log)
    try:
        process = await asyncio.create_subprocess_exec(
            # Sets PDEATHSIG; a preexec function is not safe in a program with threads.
            *("setpriv", "--pdeathsig", "TERM", "--"),
            *command.argv,
            env=os.environ | command.environ,
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        log.close()
        raise InfraFailed(f"{command.argv[0]} cannot be started: {error}") from error
    server = StartedServer(process, f"http://127.0.0.1:{port}", log)
    try:
        await _ready(server, command)
    except BaseException:
        await uncancelled(server.end())
        raise
    return server


async def _ready(server: StartedServer, command: ServerCommand) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        with suppress(TimeoutError):
            async with asyncio.timeout(command.starts_within_s):
                while not server.ended.done():
                    with suppress(aiohttp.ClientError, OSError):
                        async with http.get(command.ready) as response:
                            if response.status == 200:
                                return
                    await asyncio.wait({server.ended}, timeout=_LOOK_S)
    if server.ended.done():
        raise InfraFailed(server.ended.result())
    raise InfraFailed(f"its server was not ready within {command.starts_within_s:g} s")


async def _gone(group: int) -> None:
    """End a process group, with SIGTERM first; return when it is empty."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN_S):
                while _has_life(group):  # noqa: ASYNC110 - the kernel sets no event
                    await asyncio.sleep(_LOOK_S)
                return


def _has_life(group: int) -> bool:
    """Does a process of the group hold memory? One that only waits to be reaped does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _opened(log: str) -> IO[bytes]:
    return Path(log).open("a+b") if log else tempfile.TemporaryFile()


def _last_words(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _SHOWN_BYTES))
    return log.read().decode(errors="replace").strip()


def _filled(text: str, names: Mapping[str, object]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
