"""Build the C loop of init (`inside/init.c`) once per content, where a compiler is there.

It is a library, not a program: the zygote loads it before it clones, so a sandbox neither needs
it in its root nor starts anything to use it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "inside" / "init.c"
HOW = "install a C compiler as `cc` (apt-get install gcc libc6-dev)"
OPTIONS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
BUILD_TIMEOUT_S = 60.0


def find_compiler() -> str:
    """The compiler's path; empty if there is none."""
    return shutil.which("cc") or ""


def init_library(state_dir: Path) -> str:
    """The built library; empty where it cannot be built, so that Python serves instead."""
    compiler = find_compiler()
    if not compiler:
        return ""
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(OPTIONS).encode()).hexdigest()[:16]
    library = state_dir / "built" / f"init-{os.uname().machine}-{digest}.so"
    if library.exists() or _build(compiler, library):
        return str(library)
    return ""


def _build(compiler: str, library: Path) -> bool:
    """Under another name first: whoever sees `library` can load it."""
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        early = Path(folder) / "init.so"
        done = subprocess.run(
            [compiler, *OPTIONS, "-o", str(early), str(SOURCE)],
            capture_output=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            return False
        early.replace(library)
    return True
