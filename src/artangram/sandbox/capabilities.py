"""What a provider of sandboxes can do: its isolation level, its promises, feature by feature."""

from __future__ import annotations

import enum

import msgspec


class IsolationLevel(enum.IntEnum):
    """How well a sandbox is isolated; a higher level holds everything a lower one does."""

    PROCESS = 0
    """A process group and a directory: for trusted code only."""
    SECCOMP = 1
    """System calls filtered, resources limited; files of the host stay visible."""
    NAMESPACES = 2
    """Own files, processes, network and users; limits by rlimit, cores by affinity."""
    CGROUPS = 3
    """Memory, processes, freezing and cores enforced by the kernel for the whole sandbox."""


class Promise(enum.StrEnum):
    """What a provider keeps whatever the program does; unpromised things are best effort."""

    HIDDEN_FILES = "hidden files"
    """Own file tree with `/work`; files of the machine and of other sandboxes are out of sight."""
    OWN_PROCESSES = "own processes"
    """Other processes cannot be seen or reached, and none outlives its sandbox."""
    OWN_NETWORK = "own network"
    FILTERED_CALLS = "filtered calls"
    """System calls that reach beyond the sandbox are refused."""
    DISK_LIMIT = "disk limit"
    PROCESS_LIMIT = "process limit"
    MEMORY_LIMIT = "memory limit"
    """Of all processes together; without it, of each process."""
    HELD_CORES = "held cores"
    """A program cannot use other cores than it was given."""
    FIRM_FREEZE = "firm freeze"
    """Nothing inside can undo a freeze."""


class Ability(enum.StrEnum):
    """What a trajectory may ask for and not every provider can give."""

    ENGINE_IMAGES = "engine images"
    FILE_IMAGES = "images from a directory or an archive"
    PROXY = "a network of chosen hosts"
    DISK = "files on disk"
    USERS = "users and directories of its own"


_BY_FILTER = frozenset({Promise.FILTERED_CALLS, Promise.HELD_CORES})
_BY_NAMESPACES = _BY_FILTER | {
    Promise.HIDDEN_FILES,
    Promise.OWN_PROCESSES,
    Promise.OWN_NETWORK,
    Promise.DISK_LIMIT,
    Promise.PROCESS_LIMIT,
}
PROMISES: dict[IsolationLevel, frozenset[Promise]] = {
    IsolationLevel.PROCESS: frozenset(),
    IsolationLevel.SECCOMP: _BY_FILTER,
    IsolationLevel.NAMESPACES: _BY_NAMESPACES,
    IsolationLevel.CGROUPS: _BY_NAMESPACES | {Promise.MEMORY_LIMIT, Promise.FIRM_FREEZE},
}


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a machine can or cannot do for sandboxes, and how to get it if it cannot."""

    name: str
    available: bool
    detail: str = ""
    how: str = ""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation level of a provider or a machine, feature by feature, and its promises."""

    level: IsolationLevel
    features: tuple[Feature, ...] = ()
    promises: frozenset[Promise] = frozenset()
    abilities: frozenset[Ability] = frozenset()
    """Of a provider; a machine has none by itself."""

    def has(self, name: str) -> bool:
        return any(f.name == name and f.available for f in self.features)

    def missing(self) -> tuple[Feature, ...]:
        return tuple(f for f in self.features if not f.available)
