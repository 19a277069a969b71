"""Pack this interpreter, and the code that becomes init, for use inside any container.

Only the files init really loads are taken, with their own loader, so the image needs neither
Python nor a C library, and nothing of it is executed before the walls stand.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from artangram.sandbox.namespace.launch import interpreter, program, source_dir

INSIDE = "/.artangram"
RUNTIME = INSIDE + "/runtime"
CONTROL = INSIDE + "/control"
SOCKET = CONTROL + "/socket"
PYTHON = "bin/python"
COMPILED = "lib/init.so"
TIMEOUT_S = 30.0


@dataclass(slots=True)
class LoadedFiles:
    """What a bare interpreter has loaded once it could become init."""

    objects: set[Path] = field(default_factory=set)
    modules: set[Path] = field(default_factory=set)


def pack(target: Path, *, library: str) -> None:
    """Fill the new directory `target`, to be shown as `RUNTIME`; `library` as in `zygote.main`."""
    inventory = _take_inventory()
    stdlib = Path(os.__file__).resolve().parent
    inner_stdlib = target / stdlib.relative_to(Path(sys.base_prefix).resolve())
    for module in inventory.modules:
        if module.is_relative_to(stdlib):
            _copy(module, inner_stdlib / module.relative_to(stdlib))
        elif module.is_relative_to(source_dir()):
            _copy(module, target / "source" / module.relative_to(source_dir()))
    (inner_stdlib / "lib-dynload").mkdir(parents=True, exist_ok=True)
    for path in inventory.objects - inventory.modules:
        _copy_object(path, target)
    if library:
        _copy(Path(library), target / COMPILED)
        library = f"{RUNTIME}/{COMPILED}"
    start = program("contained", SOCKET, library=library, source=RUNTIME + "/source")
    (target / "start.py").write_bytes(start)
    # No mode that looks at times: they may not survive the way into the container.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target, quiet=2, invalidation_mode=unchecked)


def command() -> list[str]:
    """How a container starts it."""
    loader = [RUNTIME + "/loader", "--library-path", RUNTIME + "/lib"]
    return [*loader, f"{RUNTIME}/{PYTHON}", "-I", "-S", "-B", RUNTIME + "/start.py"]


def _take_inventory() -> LoadedFiles:
    done = subprocess.run(
        interpreter(),
        input=program("inventory"),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    found = LoadedFiles()
    for line in done.stdout.decode().splitlines():
        kind, _, name = line.partition(" ")
        path = Path(name)
        if path.is_file():
            (found.modules if kind == "module" else found.objects).add(path.resolve())
    return found


def _copy_object(path: Path, target: Path) -> None:
    if path == Path(sys.executable).resolve():
        _copy(path, target / PYTHON)
    elif path.name.startswith("ld-"):
        _copy(path, target / "loader")
    elif ".so" in path.name:
        # The loader asks for the short name, a link beside the file.
        for other in path.parent.glob(path.name.partition(".so")[0] + ".so*"):
            if other.resolve() == path:
                _copy(path, target / "lib" / other.name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
