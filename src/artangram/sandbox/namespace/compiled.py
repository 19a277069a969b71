"""Build the C loop of init (`inside/init.c`) once per content, where a C compiler is installed.

- It is a library, not a program: the zygote loads it before it clones, so a sandbox neither needs
  it in its root nor starts anything to use it.
- The init in Python does the same job more slowly. It serves where there is no compiler, where the
  build failed, and while a slow compiler is at work: opening a provider waits `WAIT_S` at most.
- A build that fails is logged with the compiler's own words, and `artangram doctor` shows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from artangram.aio import uncancelled

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).resolve().parents[1] / "inside" / "init.c"
HOW = "install a C compiler as `cc` (apt-get install gcc libc6-dev)"
OPTIONS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-shared", "-fPIC")
WAIT_S = 5.0
"""How long a provider waits for the build before it opens; a build takes about a second."""
BUILD_TIMEOUT_S = 120.0
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).serve"
_SHOWN_CHARS = 500


class BuildFailed(Exception):
    """The library cannot be had: why."""


def find_compiler() -> str:
    """The compiler's path; empty if the machine has none."""
    return shutil.which("cc") or ""


def library_path(state_dir: Path) -> Path:
    """Where the library of this source belongs."""
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(OPTIONS).encode()).hexdigest()[:16]
    return state_dir / "built" / f"init-{os.uname().machine}-{digest}.so"


async def build(state_dir: Path) -> Path:
    """The library, built now unless it exists. Raises `BuildFailed`; leaves nothing then."""
    library = library_path(state_dir)
    if library.exists():
        return library
    compiler = find_compiler()
    if not compiler:
        raise BuildFailed("there is no C compiler `cc`")
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        # Under another name first: a library at its own path can be loaded.
        early = Path(folder) / "init.so"
        await _run(compiler, *OPTIONS, "-o", str(early), str(SOURCE))
        await _run(sys.executable, "-I", "-S", "-c", _LOAD, str(early))
        early.replace(library)
    return library


async def _run(*argv: str) -> None:
    """Raises `BuildFailed` with what the program printed, or that it took too long."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # A compiler starts others; they end together.
    )
    try:
        async with asyncio.timeout(BUILD_TIMEOUT_S):
            printed, _ = await process.communicate()
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await uncancelled(process.communicate())
        if isinstance(error, TimeoutError):
            raise BuildFailed(f"{argv[0]} took longer than {BUILD_TIMEOUT_S:g} s") from None
        raise
    if process.returncode:
        said = printed.decode(errors="replace").strip()[:_SHOWN_CHARS]
        raise BuildFailed(f"{argv[0]} ended with {process.returncode}: {said}")


class InitBuild:
    """A build that goes on beside its provider."""

    def __init__(self, state_dir: Path) -> None:
        self._building = asyncio.create_task(_built_or_told(state_dir))

    async def within(self, wait_s: float) -> str:
        """The library if it is there by then, or an empty string: then Python serves."""
        done, _ = await asyncio.wait({self._building}, timeout=wait_s)
        return self._building.result() if done else ""

    def when_late(self, use: Callable[[str], None]) -> None:
        """Call `use` with the library when it is built, unless it is built already."""
        if not self._building.done():
            logger.info("the C init is still being built; until then, Python serves in sandboxes")
            self._building.add_done_callback(lambda building: _hand_over(building, use))

    async def aclose(self) -> None:
        self._building.cancel()
        await asyncio.wait({self._building})


async def _built_or_told(state_dir: Path) -> str:
    try:
        return str(await build(state_dir))
    except (BuildFailed, OSError) as error:
        logger.warning("Python serves in sandboxes, more slowly than the C init: %s", error)
        return ""


def _hand_over(building: asyncio.Task[str], use: Callable[[str], None]) -> None:
    if not building.cancelled() and building.result():
        use(building.result())
