"""Finds the provider of a trajectory when it is opened, or refuses it.

- Nodes say what their providers can do when they are attached; a node that says nothing is taken at
  its word later, when the sandbox is made.
- Where only some nodes can, the trajectory is bound to those by a label that every node has for
  each of its providers.
"""

from collections.abc import Iterable, Mapping

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId
from artangram.managers.agent import NodeAgent, SandboxSpec
from artangram.orchestrator.records import Opening
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.offers import ProviderOffer
from artangram.sandbox.protocol import Snapshot

_LABEL = "artangram/provider-"


def provider_labels(kinds: Iterable[str]) -> dict[str, str]:
    """Labels of a node with these providers; the strongest one is namespaces."""
    named = ("namespace" if kind == "strongest" else kind for kind in kinds)
    return {f"{_LABEL}{kind}": "yes" for kind in named}


def provided(opening: Opening, agents: Mapping[NodeId, NodeAgent]) -> Opening:
    """The opening with its provider. Raises `NotCapable` if no node can make its sandbox."""
    place = opening.place
    if isinstance(place.source, Snapshot):
        place = _with_snapshots_provider(place, place.source, agents)
    offers = {one.node: one.offers for one in agents.values()}
    if not all(offers.values()):
        return structs.replace(opening, place=place)
    able = {node: kind for node, known in offers.items() if (kind := _first(known, place))}
    if not able and offers:
        raise NotCapable(_why(offers.values(), place))
    kinds = set(able.values())
    if len(able) == len(offers) and all(able[node] == offers[node][0].kind for node in able):
        return structs.replace(opening, place=place)
    kind = place.provider or next(iter(able.values()))
    selector = opening.selector
    if len(able) < len(offers) or len(kinds) > 1:
        selector = selector | provider_labels((kind,))
    place = structs.replace(place, provider=kind)
    return structs.replace(opening, place=place, selector=selector)


def _with_snapshots_provider(
    place: SandboxSpec, source: Snapshot, agents: Mapping[NodeId, NodeAgent]
) -> SandboxSpec:
    home = agents.get(NodeId(source.node))
    made_by = source.provider or (home.offers[0].kind if home is not None and home.offers else "")
    if place.provider and made_by and place.provider != made_by:
        problem = f"the snapshot was made by {made_by!r}"
        raise BadInput("provider", problem, "ask for that one, or for none")
    return structs.replace(place, provider=made_by or place.provider)


def _first(offers: Iterable[ProviderOffer], place: SandboxSpec) -> str:
    """The kind of the first provider that can make a sandbox of `place`; empty if none can."""
    for one in offers:
        is_asked = place.provider in ("", one.kind)
        if is_asked and not one.lacks(place.source, place.limits, place.user):
            return one.kind
    return ""


def _why(offers: Iterable[tuple[ProviderOffer, ...]], place: SandboxSpec) -> str:
    known = {one.kind: one for of_node in offers for one in of_node}
    if place.provider and place.provider not in known:
        problem = f"no node has the provider {place.provider!r}, they have {', '.join(known)}"
        return f"{problem}; name it under `provider:` in the cluster's file"
    one = known[place.provider] if place.provider else next(iter(known.values()))
    return one.lacks(place.source, place.limits, place.user)
