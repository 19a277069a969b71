"""What a provider of a node offers, and whether that is enough for a trajectory.

The check is the same when a trajectory is opened, from what its nodes say of themselves, and when
its sandbox is made.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from artangram.sandbox.capabilities import Ability
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.network import is_proxied
from artangram.sandbox.protocol import (
    DirectoryImage,
    EngineImage,
    Limits,
    SandboxProvider,
    Source,
    TarImage,
)
from artangram.sandbox.user import BOX, SandboxUser

_HOW = {
    Ability.ENGINE_IMAGES: "ask for provider='container', and name that under `provider:` in the "
    "cluster's file; or give a `TarImage` of `docker save`",
    Ability.FILE_IMAGES: "ask for no source, or for a provider that isolates files",
    Ability.PROXY: "run the node's agent as root, or ask for no network",
    Ability.DISK: "ask for storage='memory'; a node has it with namespaces, root, loop devices and "
    "mkfs.ext4 (install e2fsprogs, load the module `loop`)",
    Ability.USERS: "ask for no user, home or workdir",
}


class ProviderOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One provider of a node, by its kind."""

    kind: str
    abilities: frozenset[Ability] = frozenset()

    @classmethod
    def of(cls, provider: SandboxProvider) -> ProviderOffer:
        return cls(kind=provider.kind, abilities=provider.capabilities.abilities)

    def lacks(self, source: Source, limits: Limits, user: SandboxUser) -> str:
        """What it cannot do of what is asked for, and what to do; empty if it can."""
        for ability in _asked(source, limits, user):
            if ability not in self.abilities:
                return f"the provider {self.kind!r} has no {ability.value}; {_HOW[ability]}"
        return ""


def check_offered(
    provider: SandboxProvider, source: Source, limits: Limits, user: SandboxUser
) -> None:
    """Raises `NotCapable` if `provider` cannot make such a sandbox."""
    lacks = ProviderOffer.of(provider).lacks(source, limits, user)
    if lacks:
        raise NotCapable(lacks)


def _asked(source: Source, limits: Limits, user: SandboxUser) -> Iterator[Ability]:
    match source:
        case EngineImage():
            yield Ability.ENGINE_IMAGES
        case DirectoryImage() | TarImage():
            yield Ability.FILE_IMAGES
    if is_proxied(limits.network):
        yield Ability.PROXY
    if limits.storage == "disk":
        yield Ability.DISK
    if user != BOX:
        yield Ability.USERS
