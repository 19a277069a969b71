"""Start the zygote: a bare interpreter that imports nothing but `artangram.sandbox.inside`."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path

from artangram.sandbox.inside import channel

# The parents are entered by hand, so that their __init__ (msgspec, asyncio) never runs there:
# every sandbox would carry it.
_START = """
import sys
for name in ("artangram", "artangram.sandbox"):
    module = type(sys)(name)
    module.__path__ = [{source!r} + "/" + name.replace(".", "/")]
    sys.modules[name] = module
from artangram.sandbox.inside import {module}
{module}.main({arguments})
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteTraits:
    """What the sandboxes of one zygote have in common; see `inside.zygote.main`."""

    plain: bool = False
    own_affinity: bool = False
    filtered: bool = True
    library: str = ""


def interpreter() -> list[str]:
    """A Python that takes its program from stdin: sandboxes can see PID 1's command line."""
    return [sys.executable, "-I", "-S", "-B", "-"]


def source_dir() -> Path:
    """The directory that holds the package `artangram`."""
    return Path(__file__).resolve().parents[3]


def program(module: str, *arguments: object, source: str = "", **named: object) -> bytes:
    """Source that calls `main` of a module of `artangram.sandbox.inside`."""
    shown = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())]
    where = source or str(source_dir())
    return _START.format(source=where, module=module, arguments=", ".join(shown)).encode()


def start_zygote(
    run_dir: Path, *, lock: int, traits: ZygoteTraits
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process and our end of its socket. It keeps `lock` open for as long as it lives."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    named = dataclasses.asdict(traits)
    try:
        script = program("zygote", theirs.fileno(), str(run_dir), **named)
        process = _start(script, theirs.fileno(), lock)
    finally:
        theirs.close()
    ours.setblocking(False)
    return process, ours


def start_guard(run_dir: Path, *, lock: int) -> tuple[subprocess.Popen[bytes], int]:
    """The process and the descriptor by which it knows that we live."""
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    try:
        return _start(program("guard", theirs, str(run_dir)), theirs, lock), ours
    finally:
        os.close(theirs)


def _start(script: bytes, *passed: int) -> subprocess.Popen[bytes]:
    holder = channel.memory_file(script)
    try:
        return subprocess.Popen(
            interpreter(),
            pass_fds=passed,
            stdin=holder,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
        )
    finally:
        os.close(holder)
