"""The user that programs in a sandbox run as: its name, its home, and where commands start.

- Whatever it is called, it is an unprivileged user of the machine without any capability.
- `root` is that same user under the number 0, by a user namespace: programs that insist on being
  root start, and may do no more than before.
"""

import posixpath
import re

from msgspec import Struct

from artangram.core.errors import BadInput

WORK_DIR = "/work"
ROOT = "root"
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_NOT_FOR_FILES = ("/dev", "/proc", "/sys")


class SandboxUser(Struct, frozen=True, kw_only=True):
    """Directories that do not exist are made, and belong to the user."""

    name: str = "box"
    home: str = WORK_DIR
    workdir: str = WORK_DIR

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            fix = "give lower-case letters, digits, _ and -, 32 at most"
            raise BadInput("user", f"{self.name[:80]!r} is not a name", fix)
        for field, path in (("home", self.home), ("workdir", self.workdir)):
            _check_directory(field, path)

    @property
    def is_root(self) -> bool:
        return self.name == ROOT

    @property
    def directories(self) -> tuple[str, ...]:
        """Those that a sandbox has to have beside the usual one."""
        return tuple(path for path in {self.home, self.workdir} if path != WORK_DIR)

    def passwd(self, uid: int) -> bytes:
        """Its line in `/etc/passwd`."""
        return f"{self.name}:x:{uid}:{uid}:{self.name}:{self.home}:/bin/sh\n".encode()

    def group(self, gid: int) -> bytes:
        """Its line in `/etc/group`."""
        return f"{self.name}:x:{gid}:\n".encode()


def _check_directory(field: str, path: str) -> None:
    is_plain = path.isprintable() and ":" not in path and posixpath.normpath(path) == path
    if not path.startswith("/") or path.startswith("//") or not is_plain or path == "/":
        raise BadInput(field, f"{path[:80]!r} is not a directory's path", "give one like /testbed")
    if any(f"{path}/".startswith(f"{folder}/") for folder in _NOT_FOR_FILES):
        raise BadInput(field, f"{path} is not for files", "give another directory")


BOX = SandboxUser()
