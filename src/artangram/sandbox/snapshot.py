"""How long a snapshot is kept, and what a list of snapshots tells of each."""

import math
import re

from msgspec import Struct

from artangram.core.errors import BadInput

UNNAMED_KEEP_S = 86400.0
"""A day: longer than a run takes from one group of siblings to the next."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,127}")


class SnapshotTerms(Struct, frozen=True, kw_only=True):
    """With a name it outlasts the process that made it; a name that is taken moves to it.

    It is forgotten when no sandbox has used it for `keep_s`; without `keep_s`, only on demand.
    """

    name: str = ""
    keep_s: float | None = None

    def __post_init__(self) -> None:
        if self.name and not _NAME.fullmatch(self.name):
            fix = "give letters, digits and . _ / : @ -, 128 at most, a letter or digit first"
            raise BadInput("name", f"{self.name[:80]!r} is not a name", fix)
        if self.keep_s is not None and not 0 < self.keep_s < math.inf:
            problem = f"{self.keep_s!r} is not a length of time"
            raise BadInput("keep_s", problem, "give seconds, above 0")

    def bounded(self) -> "SnapshotTerms":
        """As a caller asks for it, who may never forget one that has no name."""
        is_endless = not self.name and self.keep_s is None
        return SnapshotTerms(keep_s=UNNAMED_KEEP_S) if is_endless else self


HELD = SnapshotTerms()
"""Without a name, until it is forgotten."""


class SnapshotInfo(Struct, frozen=True, kw_only=True):
    """One snapshot of a list. What several of them share on disk counts for each."""

    name: str
    node: str = ""
    provider: str = ""
    """The kind that made it, if that is not the node's usual one."""
    layer: str = ""
    """Copies of it on other nodes have the same; another snapshot of its name has another one."""
    is_named: bool = False
    size_bytes: int = 0
    age_s: float = 0.0
    idle_s: float = 0.0
    """How long no sandbox has used it; 0 while one does."""
    keep_s: float | None = None
    """It is forgotten when it has been idle for so long; `None`: on demand only."""
    num_sandboxes: int = 0
    """How many use it now."""
