"""A root file system of a few programs of this machine and the libraries they need."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path


def fill(root: Path, programs: Iterable[str]) -> None:
    """Make the directory `root` one in which `programs` run."""
    found = [str(Path(shutil.which(name) or name).resolve()) for name in programs]
    links = {name: Path(path).name for name, path in zip(programs, found, strict=True)}
    libraries = {word for path in found for word in _libraries(path)}
    for path in (*found, *libraries):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(path).read_bytes())
        target.chmod(0o755)
    for name, program in links.items():
        if name != program:
            (root / "usr/bin" / name).symlink_to(program)
    for name in ("etc", "proc", "dev"):
        (root / name).mkdir()
    (root / "bin").symlink_to("usr/bin")


def _libraries(program: str) -> list[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return [word for word in listed.stdout.split() if word.startswith("/")]
