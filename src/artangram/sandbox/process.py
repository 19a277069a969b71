"""The contract of a command that runs beside others in its sandbox: `Sandbox.start` gives one.

- Its output comes as it is printed, up to `WINDOW_BYTES` more than its reader has taken; then the
  program waits. Nothing is dropped.
- Its time limit, or its caller, ends it and everything that descends from it, and nothing else.
- It ends exactly once, and `wait` tells how, with nothing of it left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from artangram.core.errors import BadInput

if TYPE_CHECKING:
    from artangram.sandbox.protocol import CommandResult, Output

OnOutput: TypeAlias = "Callable[[Output], None]"

WINDOW_BYTES = 1 << 20
"""Output that its reader has not taken; a pipe holds some more."""
MOST_PARALLEL = 64
"""Commands at once in one sandbox, beside the main one."""
LAST_SIGNAL = 64


class TerminalSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a terminal in characters."""

    rows: int = 24
    columns: int = 80

    def __post_init__(self) -> None:
        for name, value in (("rows", self.rows), ("columns", self.columns)):
            if not 0 < value < 1 << 15:
                raise BadInput(f"terminal.{name}", f"{value} is not a size", "give 1 to 32767")


class ProcessInput(msgspec.Struct, frozen=True, kw_only=True):
    """What is told to a started process; each part may be left out.

    It says what shall be, not what shall change: told twice, it has the effect of once.
    """

    stdin: bytes = b""
    stdin_at: int = 0
    """How many bytes of its stdin came before."""
    closes_stdin: bool = False
    taken: int = 0
    """How many bytes of its output the reader has taken, from the beginning on."""
    terminal: TerminalSize | None = None


class ProcessBegan(msgspec.Struct, frozen=True, kw_only=True):
    """A process was started; `pid` is 0 if its program is known not to run."""

    pid: int
    action_id: str = ""
    """Of the action that it is, where that is not known otherwise."""


def check_signal(number: int) -> None:
    """Raises `BadInput` for what is not the number of a signal."""
    if not isinstance(number, int) or not 0 < number <= LAST_SIGNAL:
        problem = f"{number!r} is not the number of a signal"
        raise BadInput("signal", problem, f"give 1 to {LAST_SIGNAL}, as in signal.SIGTERM")


class SandboxProcess(Protocol):
    """See the module."""

    @property
    def pid(self) -> int:
        """As the sandbox numbers its processes; 0 if the program did not start."""
        ...

    async def feed(self, given: ProcessInput) -> None:
        """Returns when the program's stdin has taken all of it. `OSError` if that is closed."""
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to its process group, as a terminal does."""
        ...

    async def resize(self, cores: tuple[int, ...]) -> None:
        """Give it exactly these cores, now."""
        ...

    def end(self) -> None:
        """Kill it and what descends from it."""
        ...

    async def wait(self) -> CommandResult:
        """How it ended, without its output. `SandboxError` if its sandbox failed."""
        ...
