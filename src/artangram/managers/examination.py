"""What a node says about itself when it is examined: versions, clock, limits, memory, disks.

Records only, which clients need on any system; `selfexamination` fills them in.
"""

from msgspec import Struct

from artangram.sandbox.capabilities import Feature


class DirectoryInfo(Struct, frozen=True, kw_only=True):
    """A directory that is written to."""

    purpose: str
    """What is there: journal, sandboxes, scratch."""
    path: str
    filesystem: str
    """Its kind, as the kernel calls it: ext4, tmpfs, nfs4."""
    free_mb: int
    total_mb: int


class NodeExamination(Struct, frozen=True, kw_only=True, tag="examination"):
    """See the module."""

    version: str
    python: str
    protocol: int
    """Version of what agents and orchestrators say to each other."""
    unix_s: float
    """Its clock, while it was asked."""
    cores: int
    """That its agent may use, offered or not."""
    core_limit: float | None = None
    """Cores that its container may use at once; `None` if there is no limit."""
    memory_mb: int
    free_memory_mb: int
    memory_limit_mb: int | None = None
    """Of its container; `None` if there is no limit."""
    providers: tuple[str, ...] = ()
    level: str = ""
    """Isolation of its usual provider."""
    control_groups: Feature | None = None
    """`None` if its provider does not know them."""
    directories: tuple[DirectoryInfo, ...] = ()
    data: bytes = b""
    """What it was sent: that came and went as fast as the link is."""
