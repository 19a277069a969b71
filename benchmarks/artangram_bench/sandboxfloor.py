"""The least that a command in a sandbox can cost: `floor.c`, run inside one.

It starts the program and reads what it prints from inside, with the same namespaces, filter and
control groups, and does nothing else: no request, no lease, no limits of an action, no report.
"""

import asyncio
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from artangram.sandbox.namespace.compiled import HOW, find_compiler
from artangram.sandbox.protocol import Command, HostImage, Sandbox, SandboxProvider
from artangram_bench.sandboxpeers import PROGRAM, Contender, Missing

FLOOR = "the floor"
SOURCE = Path(__file__).with_name("floor.c")
BUILD_TIMEOUT_S = 60.0
WHERE = "/work/floor"


async def enter_floor(
    stack: AsyncExitStack, provider: SandboxProvider, *, pause_s: float, clients: int
) -> Contender | Missing:
    """The floor, in a sandbox of its own until `stack` closes; or why it cannot be built."""
    program = await asyncio.to_thread(_build)
    if program is None:
        return Missing(name=FLOOR, why="floor.c cannot be built", how=HOW)
    sandbox = await provider.create(HostImage())
    stack.push_async_callback(sandbox.close)
    await sandbox.write(WHERE, program, mode=0o755)

    async def once() -> float:
        return await _told(sandbox, "once", str(int(pause_s * 1e6)), PROGRAM) / 1000

    async def many(seconds: float) -> float:
        return await _told(sandbox, "many", str(seconds), str(clients), PROGRAM)

    return Contender(name=FLOOR, run=once, rate=many)


def _build() -> bytes | None:
    """The program; `None` where it cannot be built."""
    compiler = find_compiler()
    if not compiler:
        return None
    with TemporaryDirectory(prefix="artangram-floor-") as folder:
        made = Path(folder) / "floor"
        done = subprocess.run(
            [compiler, "-O2", "-o", str(made), str(SOURCE)],
            capture_output=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        return made.read_bytes() if done.returncode == 0 else None


async def _told(sandbox: Sandbox, *arguments: str) -> float:
    result = await sandbox.run(Command(argv=(WHERE, *arguments)))
    assert result.ok, result.stderr
    return float(result.stdout)
