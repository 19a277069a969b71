"""What a command may use of cores that the kernel shares."""

import msgspec

from artangram.core.errors import BadInput


class CpuShare(msgspec.Struct, frozen=True, kw_only=True):
    """A part of cores that others use, too: how they are divided, and the most there is."""

    weight_milli: int
    """Contenders are served in proportion to it; one with 1000 counts as usual."""
    limit_milli: int
    """Thousandths of a core."""

    def __post_init__(self) -> None:
        if min(self.weight_milli, self.limit_milli) <= 0:
            raise BadInput("share", "has a weight or a limit below 1", "give both 1 or more")
