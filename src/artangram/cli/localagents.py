"""`artangram up --local N`: agents of this machine that join over loopback, to try a cluster.

- Each agent has its part of the cores and of the memory; the head keeps the first part.
- Agents dial like those of other machines: TLS with the pinned fingerprint, the join token by
  environment.
- They end with the head: told to after it has drained, by PDEATHSIG if it dies.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from artangram.managers.machine import MachineInfo
from artangram.orchestrator.joinednodes import AgentAddress

END_S = 15.0
"""How long an agent may take to end its sandboxes before it is killed."""
LOOK_EVERY_S = 1.0

_VERB = "from artangram.cli import main; main()"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class LocalPart(Struct, frozen=True, kw_only=True):
    """What one node has of this machine."""

    node: str
    cores: tuple[int, ...]
    memory_mb: int

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.cores))
        noun = "core" if len(self.cores) == 1 else "cores"
        return f"{self.node} with {noun} {numbers} and {self.memory_mb} MB"


def local_parts(
    machine: MachineInfo, count: int, *, head_cores: int | None
) -> tuple[int, list[LocalPart]]:
    """How many cores the head keeps, and the parts of the agents.

    With fewer cores than nodes every node has one, and several share it.
    """
    cores = machine.cores
    kept = min(head_cores or max(1, len(cores) // (count + 1)), len(cores))
    left = cores[kept:]
    if len(left) < count:
        left = tuple(cores[(kept + number) % len(cores)] for number in range(count))
    size, more = divmod(len(left), count)
    parts, first = [], 0
    for number in range(count):
        end = first + size + (number < more)
        part = LocalPart(
            node=f"local-{number + 1}",
            cores=left[first:end],
            memory_mb=machine.memory_mb // (count + 1),
        )
        parts.append(part)
        first = end
    return kept, parts


def do_overlap(machine: MachineInfo, kept: int, parts: Sequence[LocalPart]) -> bool:
    """Does any core belong to two nodes?"""
    given = [*machine.cores[:kept], *(core for part in parts for core in part.cores)]
    return len(set(given)) < len(given)


class LocalAgents:
    """Processes of this machine, one for each part."""

    def __init__(
        self, parts: Sequence[LocalPart], *, token: str, state_dir: Path, console: Console
    ) -> None:
        self._parts = parts
        self._token = token
        self._state_dir = state_dir
        self._console = console
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watching: asyncio.Task[None] | None = None

    def start(self, address: AgentAddress) -> None:
        """In the head's loop, when agents may join."""
        for part in self._parts:
            self._running[part.node] = self._started(part, address)
            self._console.print(f"Started {part}; log in {self._log(part.node)}", soft_wrap=True)
        self._watching = asyncio.ensure_future(self._watch())

    def end(self) -> None:
        """Return when all of them are gone. The head is, too."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _started(self, part: LocalPart, address: AgentAddress) -> subprocess.Popen[bytes]:
        host = _ANYWHERE.get(address.host, address.host)
        at = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
        with open(self._log(part.node), "ab") as log:
            return subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", "--"),
                    *("taskset", "--cpu-list", ",".join(map(str, part.cores))),
                    *(sys.executable, "-c", _VERB, "agent", "--join", at, "--node", part.node),
                    *("--fingerprint", address.fingerprint, "--memory-mb", str(part.memory_mb)),
                ],
                env=os.environ | {"ARTANGRAM_JOIN_TOKEN": self._token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the head, which drains first.
            )

    async def _watch(self) -> None:
        """Say it when one ends before the head does."""
        while self._running:
            await asyncio.sleep(LOOK_EVERY_S)
            for node, process in list(self._running.items()):
                if process.poll() is not None:
                    del self._running[node]
                    self._console.print(
                        f"{node} ended with code {process.returncode}: {self._last_words(node)}",
                        soft_wrap=True,
                        markup=False,
                    )

    def _log(self, node: str) -> Path:
        return self._state_dir / f"{node}.log"

    def _last_words(self, node: str) -> str:
        with suppress(OSError):
            lines = self._log(node).read_text(errors="replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return "its log cannot be read"
