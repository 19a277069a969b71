"""A ready elastic action: a pytest suite that keeps all the cores it has busy, and no more.

- `command(args)` is the argv, for `t.run(command(["tests"]), cpu=between(1, 8))`.
- `one_file()` is the whole program as one file, for a sandbox that has Python and pytest but not
  this package: write it there and run `command(args, program="/work/elastictest.pyz")`.
- Nothing here imports the rest of artangram, and this module imports next to nothing: it is
  imported at the start of every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["command", "one_file"]

MODULE = "artangram.envs.elastictest"
_ALONE = "artangram_elastictest"
"""Its name as a package of its own, unlikely to be a name in a user's suite."""
_START = f"""\
import sys
from {_ALONE}.main import main
if __name__ == "__main__":
    sys.exit(main())
"""


def command(
    args: Iterable[str] = (), *, python: str = "python3", program: str | None = None
) -> list[str]:
    """The argv that runs pytest with `args` on all the cores it gets.

    `program` is where `one_file()` was written; without it this package must be installed there.
    """
    start = ["-m", MODULE] if program is None else [program]
    return [python, *start, *args]


def one_file() -> bytes:
    """This program as one file that any Python from 3.9 with pytest from 7 can run."""
    import io
    import zipfile

    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), _START)
        for name, source in _sources():
            archive.writestr(zipfile.ZipInfo(f"{_ALONE}/{name}"), source)
    return body.getvalue()


def _sources() -> list[tuple[str, bytes]]:
    home = os.path.dirname(__file__)
    found = []
    for name in sorted(os.listdir(home)):
        if name.endswith(".py") and name != "__main__.py":
            with open(os.path.join(home, name), "rb") as source:
                found.append((name, source.read()))
    return found
