"""Where the processes of replicas come from: a fork of a zygote, or a fresh interpreter.

A cradle starts and kills by number and tells every end exactly once, through `on_ended`, when the
process is gone. A zygote that dies takes its replicas along; the next start makes a new one.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from artangram.aio import uncancelled
from artangram.core.errors import InfraFailed
from artangram.services import wire

OnEnded = Callable[[int, int], None]
"""Hears the number of a replica that is gone, and its exit code."""

START_PATIENCE_S = 120.0
"""How long a zygote may take to import torch on a machine that does much else."""


class ProcessStarter(Protocol):
    """See the module."""

    on_ended: OnEnded
    is_fresh: bool
    """Every process starts from nothing, when it is needed and not before."""

    async def start(self, fork: wire.Fork) -> None: ...

    def kill(self, number: int) -> None: ...

    def preload(self, module: str) -> bool:
        """Import a module for all that start later, where that helps; was that new?"""
        ...

    async def aclose(self) -> None: ...


class ForkStarter:
    """Forks of one zygote."""

    is_fresh = False

    def __init__(self, directory: Path, *, preload: tuple[str, ...]) -> None:
        self.on_ended: OnEnded = lambda number, status: None
        self._directory = directory
        self._modules = list(preload)
        self._zygote: _Zygote | None = None
        self._starting = asyncio.Lock()

    async def start(self, fork: wire.Fork) -> None:
        (await self._running()).order(fork, started=fork.number)

    def kill(self, number: int) -> None:
        if self._zygote is not None:
            self._zygote.order(wire.End(number))

    def preload(self, module: str) -> bool:
        if module in self._modules:
            return False
        self._modules.append(module)
        if self._zygote is not None:
            self._zygote.order(wire.Preload(module))
        return True

    async def aclose(self) -> None:
        if self._zygote is not None:
            await self._zygote.aclose()

    async def _running(self) -> "_Zygote":
        async with self._starting:
            if self._zygote is None or self._zygote.is_gone:
                if self._zygote is not None:
                    await self._zygote.aclose()
                self._zygote = await _Zygote.spawned(
                    self._directory, self._modules, on_ended=lambda *end: self.on_ended(*end)
                )
            return self._zygote


class _Zygote:
    """A zygote and the connection to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        on_ended: OnEnded,
    ) -> None:
        self._process = process
        self._reader, self._writer = streams
        self._on_ended = on_ended
        self._started: set[int] = set()
        self._pidfd = os.pidfd_open(process.pid)
        self._ready = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        self.is_gone = False

    @classmethod
    async def spawned(cls, directory: Path, modules: list[str], *, on_ended: OnEnded) -> "_Zygote":
        """Start one, and wait until it is ready."""
        ours, theirs = socket.socketpair()
        argv = ("-m", "artangram.services.zygote", str(theirs.fileno()), str(directory), *modules)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environ(),
                # A signal to our group must not reach it: it ends after us, and cleans up.
                start_new_session=True,
            )
        zygote = cls(process, await asyncio.open_unix_connection(sock=ours), on_ended=on_ended)
        try:
            async with asyncio.timeout(START_PATIENCE_S):
                await asyncio.shield(zygote._ready)
        except BaseException as error:
            await uncancelled(zygote.aclose())
            if isinstance(error, TimeoutError):
                raise InfraFailed("the zygote of the model services did not get ready") from None
            raise
        return zygote

    def order(self, order: wire.Order, *, started: int | None = None) -> None:
        if self.is_gone:
            if started is not None:
                raise InfraFailed("the zygote of the model services is gone")
            return
        if started is not None:
            self._started.add(started)
        self._writer.write(wire.frame(order))

    async def aclose(self) -> None:
        """Return when it and all its replicas are gone."""
        self._writer.close()
        if not self._ready.done():
            _kill(self._pidfd)  # It would look at its connection only after its imports.
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        decode = msgspec.msgpack.Decoder(wire.News).decode
        while (body := await wire.next_frame(self._reader)) is not None:
            match decode(body):
                case wire.ZygoteReady():
                    self._ready.set_result(None)
                case wire.ReplicaEnded(number, status):
                    self._tell(number, status)
        self.is_gone = True
        self._writer.close()
        await self._process.wait()
        os.close(self._pidfd)
        if not self._ready.done():
            self._ready.set_exception(InfraFailed("the zygote of the model services died"))
        for number in list(self._started):
            self._tell(number, -signal.SIGKILL)  # The kernel killed them with their zygote.

    def _tell(self, number: int, status: int) -> None:
        self._started.discard(number)
        self._on_ended(number, status)


class ExecStarter:
    """A new interpreter for every replica: what a service costs that nobody keeps warm."""

    is_fresh = True

    def __init__(self) -> None:
        self.on_ended: OnEnded = lambda number, status: None
        self._pidfds: dict[int, int] = {}
        self._waits: set[asyncio.Task[None]] = set()

    async def start(self, fork: wire.Fork) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "artangram.services.replica",
            stdin=asyncio.subprocess.PIPE,
            env=_environ(),
        )
        self._pidfds[fork.number] = os.pidfd_open(process.pid)
        waiting = asyncio.create_task(self._wait(fork, process))
        self._waits.add(waiting)
        waiting.add_done_callback(self._waits.discard)

    def kill(self, number: int) -> None:
        if number in self._pidfds:
            _kill(self._pidfds[number])

    def preload(self, module: str) -> bool:
        return False  # Nothing is shared between fresh interpreters.

    async def aclose(self) -> None:
        for number in list(self._pidfds):
            self.kill(number)
        if self._waits:
            await asyncio.wait(set(self._waits))

    async def _wait(self, fork: wire.Fork, process: asyncio.subprocess.Process) -> None:
        await process.communicate(msgspec.msgpack.encode(fork))
        os.close(self._pidfds.pop(fork.number))
        assert process.returncode is not None
        self.on_ended(fork.number, process.returncode)


def _kill(pidfd: int) -> None:
    """Not by number, which may be another's by now; nor by asyncio, which would reap it twice."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _environ() -> dict[str, str]:
    """Ours, so that what can be imported here can be imported there."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        # A library with threads of its own from the start could not be forked.
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # A module that asks torch for GPUs when it is imported must not start CUDA in the zygote.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
