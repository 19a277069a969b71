"""A bash on a terminal of its own, driven line by line: what agents' frameworks call a session.

- A command is one line for the shell, so exactly one prompt follows it; the prompt tells its exit
  code. Echo is off, and the prompt is made anew each time, whatever a command did to `PS1`.
- Commands run at the top level of the shell: directory, variables and functions last.
- A command that runs out of time goes on: the caller interrupts it or waits for it. Programs that
  ask questions are driven by `send` and `until`.
"""

import asyncio
import re
import shlex
from codecs import getincrementaldecoder
from uuid import uuid4

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.process import ProcessHandle
from artangram.sandbox.protocol import Output

SIZE = (50, 250)
PROMPT = re.compile("\x1e" r"(\d+)" "\x1f")
"""An exit code between two characters that no program prints."""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
_CUT = re.compile(r"(\r|\x1b(\[[0-?]*[ -/]*)?)\Z")
"""The beginning of what may go on in the next piece."""
_MOST_LINE_BYTES = 2000
"""A terminal cuts lines at 4095 bytes."""
_BEGIN = r"""set +H; stty -echo; PROMPT_COMMAND='printf "\036%d\037" "$?"; PS1= PS2= PS0='; """
_PLAIN = re.compile(r"[A-Za-z0-9_./=:,@%+$ -]*")
"""Commands of these characters only are words, which is correct syntax if none is reserved."""
_RESERVED = frozenset(
    ("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if")
) | {"in", "select", "then", "time", "until", "while"}


class TerminalReply(Struct, frozen=True, kw_only=True):
    """What came on the terminal until one of the expected patterns, or the prompt, did."""

    text: str
    exit_code: int | None
    """Told by the prompt; `None` if a pattern came first."""
    matched: str
    """The pattern; empty for the prompt."""


class BashTerminal:
    """See the module; `open` gives one."""

    def __init__(self, trajectory: TrajectoryHandle, process: ProcessHandle) -> None:
        self._trajectory = trajectory
        self._process = process
        self._decoder = getincrementaldecoder("utf-8")(errors="backslashreplace")
        self._held = ""
        self._text = ""
        self._reading: asyncio.Future[Output | None] | None = None

    @classmethod
    async def open(cls, trajectory: TrajectoryHandle, *, timeout_s: float) -> "BashTerminal":
        """Start it; raises `InfraFailed` if it does not run or show its prompt in time."""
        argv = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
        environ = {"TERM": "dumb", "PS1": "", "PS2": ""}
        process = await trajectory.start(argv, terminal=SIZE, environ=environ, lossless=True)
        terminal = cls(trajectory, process)
        word = uuid4().hex
        try:
            # In two halves, because the line itself is echoed.
            await process.write(f"{_BEGIN}printf '%s%s\\n' {word} begins\n")
            async with asyncio.timeout(timeout_s):
                await terminal.until([f"{word}begins\n"])
                await terminal.until([])
        except (TimeoutError, EOFError) as error:
            await process.kill()
            problem = f"bash showed no prompt within {timeout_s:g} s: {terminal._text[-200:]!r}"
            raise InfraFailed(f"{problem}; the sandbox needs bash and stty") from error
        return terminal

    async def run(
        self, command: str, *, timeout_s: float | None, expect: tuple[str, ...] = ()
    ) -> TerminalReply:
        """Run a command; raises `TimeoutError` when it has not ended in time. It then goes on."""
        lines = command.encode(errors="surrogateescape").split(b"\n")
        is_long = max(map(len, lines)) > _MOST_LINE_BYTES or len(command) > 32 * _MOST_LINE_BYTES
        if is_long or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", command):
            path = f"/tmp/.command-{uuid4().hex}"
            await self._trajectory.write(path, command)
            line = f". {path}"
        else:
            line = f"eval {shlex.quote(command)}"
        return await self.send(line, expect=expect, timeout_s=timeout_s)

    async def send(
        self, line: str, *, expect: tuple[str, ...] = (), timeout_s: float | None
    ) -> TerminalReply:
        """Type a line, and wait for a pattern or the prompt."""
        await self._process.write(line + "\n")
        async with asyncio.timeout(timeout_s):
            return await self.until(list(expect))

    async def key(
        self, key: bytes, *, timeout_s: float, expect: tuple[str, ...] = ()
    ) -> TerminalReply:
        """Press a key, as Ctrl-C, and wait likewise."""
        await self._process.write(key)
        async with asyncio.timeout(timeout_s):
            return await self.until(list(expect))

    async def until(self, patterns: list[str]) -> TerminalReply:
        """What comes until a pattern or the prompt does. Raises `EOFError` if the shell ends."""
        compiled = [(pattern, re.compile(pattern)) for pattern in patterns]
        while True:
            found = [(at, name) for name, one in compiled if (at := one.search(self._text))]
            prompt = PROMPT.search(self._text)
            if prompt is not None:
                found.append((prompt, ""))
            if found:
                first, name = min(found, key=lambda each: each[0].start())
                text, self._text = self._text[: first.start()], self._text[first.end() :]
                code = int(first[1]) if not name else None
                return TerminalReply(text=text, exit_code=code, matched=name)
            await self._more()

    async def _more(self) -> None:
        # Not cancelled with its caller: what was read meanwhile is for the next one.
        self._reading = self._reading or asyncio.ensure_future(self._process.read())
        piece = await asyncio.shield(self._reading)
        self._reading = None
        if piece is None:
            raise EOFError(self._text)
        text = _ESCAPES.sub("", self._held + self._decoder.decode(piece.data))
        cut = _CUT.search(text)
        whole = len(text) if cut is None else cut.start()
        self._held = text[whole:]
        self._text += text[:whole].replace("\r\n", "\n")

    async def settle(self, *, timeout_s: float) -> str:
        """Wait for the prompt after the last line that was typed; what came until then."""
        word = uuid4().hex
        await self._process.write(f"stty -echo; printf '%s\\n' {word}\n")
        async with asyncio.timeout(timeout_s):
            text = PROMPT.sub("", (await self._past(word)).text)
        return text

    def unread(self, text: str) -> None:
        """Let `text` be the beginning of what comes next."""
        self._text = text + self._text

    async def _past(self, word: str) -> TerminalReply:
        texts: list[str] = []
        while True:
            reply = await self.until([f"{word}\n"])
            texts.append(reply.text)
            if reply.matched:
                await self.until([])
                return TerminalReply(text="".join(texts), exit_code=None, matched=word)

    async def syntax_error(self, command: str) -> str:
        """What bash says about the command without running it; empty if it is well formed."""
        if _PLAIN.fullmatch(command) and not _RESERVED & set(command.split()):
            return ""
        stdin = command if command.endswith("\n") else command + "\n"
        checked = await self._trajectory.run(["bash", "-n"], stdin=stdin, kind="bash/syntax")
        if checked.exit_code is None:
            raise InfraFailed(f"the syntax was not checked: {checked.reason}")
        return "" if checked.exit_code == 0 else checked.stderr or f"exit code {checked.exit_code}"

    async def close(self) -> None:
        """End it and everything that it started."""
        await self._process.kill()
        if self._reading is not None:
            await self._reading
        await self._process.wait()
