"""The sandbox providers of one node, side by side; the first is the usual one."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.managers import wire
from artangram.managers.agent import SandboxSpec
from artangram.managers.examination import NodeExamination
from artangram.managers.selfexamination import examine_node
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.offers import ProviderOffer
from artangram.sandbox.protocol import SandboxProvider, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo


class NodeProviders:
    """Finds the provider of a sandbox by its kind."""

    def __init__(self, providers: Sequence[SandboxProvider]) -> None:
        self._by_kind = {one.kind: one for one in providers}
        if len(self._by_kind) != len(providers) or not providers:
            kinds = ", ".join(one.kind for one in providers) or "none"
            raise BadInput("provider", f"a node cannot have {kinds}", "give one of each kind")

    def __repr__(self) -> str:
        return f"<NodeProviders {', '.join(self._by_kind)}>"

    @property
    def offers(self) -> tuple[ProviderOffer, ...]:
        return tuple(ProviderOffer.of(one) for one in self._by_kind.values())

    def of(self, place: SandboxSpec) -> SandboxProvider:
        """The one that makes sandboxes of `place`. Raises `NotCapable`."""
        kind = place.source.provider if isinstance(place.source, Snapshot) else ""
        return self.named(kind or place.provider)

    def made(self, snapshot: Snapshot, place: SandboxSpec) -> Snapshot:
        """`snapshot` of a sandbox of `place`, with the provider that has it."""
        kind, usual = self.of(place).kind, next(iter(self._by_kind))
        return snapshot if kind == usual else structs.replace(snapshot, provider=kind)

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Of all of them, each with the provider that has it."""
        usual, found = next(iter(self._by_kind)), []
        for kind, provider in self._by_kind.items():
            said = "" if kind == usual else kind
            found += [structs.replace(one, provider=said) for one in await provider.snapshots()]
        return tuple(found)

    async def forget(self, snapshot: Snapshot) -> bool:
        return await self.named(snapshot.provider).forget(snapshot)

    async def examine(self, data: bytes) -> NodeExamination:
        """What this machine says about itself; `data` goes back."""
        usual = next(iter(self._by_kind.values()))
        return await asyncio.to_thread(
            examine_node,
            list(self._by_kind),
            usual.capabilities,
            protocol=wire.VERSION,
            data=data,
        )

    async def close(self) -> None:
        for one in self._by_kind.values():
            await one.close()

    def named(self, kind: str) -> SandboxProvider:
        """The one of this kind, or the usual one without a name. Raises `NotCapable`."""
        kind = kind or next(iter(self._by_kind))
        if kind not in self._by_kind:
            problem = f"this node has no provider {kind!r}"
            raise NotCapable(f"{problem}; it has {', '.join(self._by_kind)}")
        return self._by_kind[kind]
