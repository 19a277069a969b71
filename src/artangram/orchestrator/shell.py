"""A shell that stays: directory, variables and functions last from one command to the next.

- The shell is one started process, so one action: it holds its lease until it is closed.
- It reads each command from its stdin and runs it with `eval`; commands themselves have an empty
  stdin. The end of each is told by a word that no earlier command could know.
- A command that ends the shell (`exit`, or an error under `set -e`) is answered with the shell's
  own exit code; further ones raise `ShellEnded`. One that runs out of time ends the shell.
"""

import asyncio
from collections.abc import Callable
from typing import Self
from uuid import uuid4

from msgspec import Struct

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.process import ProcessHandle

MOST_BYTES = 16 << 20
"""Of what one command prints on each channel; the rest is counted."""

_BASH = r"""
exec 3<&0 4>&1 5>&2 </dev/null
while IFS= read -r -d '' _artangram_word <&3 && IFS= read -r -d '' _artangram_line <&3; do
eval "$_artangram_line" 3<&- 4>&- 5>&-
_artangram_code=$?
printf '\0%s%s\n' "$_artangram_word" "$_artangram_code" >&4
printf '\0%s\n' "$_artangram_word" >&5
done
"""
PROGRAM = ("bash", "--norc", "--noprofile", "-c", _BASH, "bash")


class ShellEnded(Exception):
    """The shell has ended, so it runs nothing more; open another one."""


class ShellResult(Struct, frozen=True, kw_only=True):
    """How one command of a shell ended."""

    exit_code: int
    stdout: str
    stderr: str
    truncated_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Did it succeed?"""
        return self.exit_code == 0


class _Channel:
    """What a command prints on one channel, up to the mark that ends it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.num_dropped = 0
        self._mark = b""
        self.told: bytes | None = None
        """What follows the mark."""

    def begin(self, mark: bytes) -> None:
        self._mark, self.told, self.num_dropped = mark, None, 0

    def add(self, data: bytes) -> None:
        self.data += data
        start = max(0, len(self.data) - len(data) - len(self._mark) - 16)
        at = self.data.find(self._mark, start)
        if at >= 0 and (end := self.data.find(b"\n", at)) >= 0:
            self.told = bytes(self.data[at + len(self._mark) : end])
            del self.data[at:]
        elif len(self.data) > 2 * MOST_BYTES:
            self.num_dropped += len(self.data) - MOST_BYTES
            del self.data[: len(self.data) - MOST_BYTES]

    def take(self) -> str:
        over = max(0, len(self.data) - MOST_BYTES)
        self.num_dropped += over
        text = self.data[over:].decode(errors="replace")
        self.data.clear()
        return text


class ShellHandle:
    """See the module; `TrajectoryHandle.shell` gives one, for `async with` or to be closed."""

    def __init__(
        self, process: ProcessHandle, *, new_word: Callable[[], str] = lambda: uuid4().hex
    ) -> None:
        self.process = process
        """For its signals; what it prints is for `run`."""
        self._new_word = new_word
        self._turn = asyncio.Lock()
        self._channels = {"stdout": _Channel(), "stderr": _Channel()}
        self._ended = ""

    def __repr__(self) -> str:
        return f"<Shell {self.process.pid}: {self._ended or 'open'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, command: str, *, timeout_s: float | None = None) -> ShellResult:
        """Run a command and wait for its end; what it printed and its exit code.

        After `timeout_s` seconds the shell is killed, and `TimeoutError` is raised. Raises
        `ShellEnded` if the shell has ended before.
        """
        if not isinstance(command, str) or "\0" in command:
            raise BadInput("command", "is not a text without NUL", "give what a shell can read")
        async with self._turn:
            if self._ended:
                raise ShellEnded(f"the shell has ended: {self._ended}; open another one")
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._run(command)
            except TimeoutError:
                await self._kill(f"a command ran longer than {timeout_s:g} s")
                raise
            except asyncio.CancelledError:
                await self._kill("a command was cancelled")
                raise

    async def _run(self, command: str) -> ShellResult:
        word = self._new_word()
        for channel in self._channels.values():
            channel.begin(b"\0" + word.encode())
        try:
            await self.process.write(f"{word}\0{command}\0")
        except BrokenPipeError:
            return await self._last()
        while any(channel.told is None for channel in self._channels.values()):
            piece = await self.process.read()
            if piece is None:
                return await self._last()
            self._channels[piece.channel].add(piece.data)
        return self._result(int(self._channels["stdout"].told or b"1"))

    async def _last(self) -> ShellResult:
        """The shell has ended under a command."""
        ended = await self.process.wait()
        self._ended = ended.reason or f"exit code {ended.exit_code}"
        if ended.exit_code is None or ended.outcome is Outcome.INFRA_FAILED:
            raise InfraFailed(f"the shell was lost: {ended.reason}")
        if ended.start_error:
            raise ShellEnded(f"the sandbox has no bash: {ended.start_error}")
        return self._result(ended.exit_code)

    def _result(self, exit_code: int) -> ShellResult:
        stdout, stderr = (self._channels[name] for name in ("stdout", "stderr"))
        texts = stdout.take(), stderr.take()
        return ShellResult(
            exit_code=exit_code,
            stdout=texts[0],
            stderr=texts[1],
            truncated_bytes=stdout.num_dropped + stderr.num_dropped,
        )

    async def _kill(self, why: str) -> None:
        self._ended = why
        await self.process.kill()

    async def close(self) -> None:
        """End the shell and everything that it started."""
        if not self._ended:
            await self._kill("it was closed")
        while await self.process.read() is not None:
            pass
