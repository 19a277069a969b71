"""What a sandbox on this machine was made with, whichever provider made it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from artangram.sandbox.namespace.cgroups import SandboxCgroups
from artangram.sandbox.protocol import Image, Limits
from artangram.sandbox.user import BOX, WORK_DIR, SandboxUser

FIRST_UID = 1_900_000_000
UID_BLOCK = 1 << 16
NUM_UID_BLOCKS = 3000
NO_CORE = 1
"""Bytes. With 0 the kernel still starts the program that a machine may have for cores."""
OPEN_FILES = 8192
"""A command may have half as many, init as many as there are."""
LARGEST_FILE = 1 << 42
"""Bytes, holes included. A file in memory could be larger than a disk allows for its copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """`layers` are snapshots, from the top down; `work_dir` is where `/work` really is."""

    name: str
    image: Image
    limits: Limits
    uid: int
    layers: tuple[str, ...] = ()
    groups: SandboxCgroups | None = None
    work_dir: str = WORK_DIR
    user: SandboxUser = BOX


def fresh_uids(besides: Collection[int] = ()) -> Iterator[int]:
    """User ids that are free on the machine, most likely also of other providers.

    Those `besides` own files already: all of their blocks are left out.
    """
    taken = {(uid - FIRST_UID) // UID_BLOCK for uid in besides}
    free = [block for block in range(NUM_UID_BLOCKS) if block not in taken]
    return itertools.count(FIRST_UID + random.SystemRandom().choice(free) * UID_BLOCK)
