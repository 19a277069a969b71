"""Which nodes of a Ray cluster get a warden, and what it claims there: pure decisions.

- Nodes with GPUs are left to Ray unless they were asked for: frameworks ask for their CPUs, too,
  and would wait for ever for CPUs that are claimed. GPUs are claimed only where that was asked for,
  all of a node or of a bundle: then the same ones are claimed after a restart of the warden.
- One agent per machine, known by a name that a restart of the raylet does not change: the one that
  was given to `ray start --node-name`, else the host name.
- The head's own machine is claimed but gets no agent: the head runs there itself.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct


class RayNode(Struct, frozen=True, kw_only=True):
    """A node as Ray tells it."""

    id: str
    name: str
    cpus: int
    gpus: float = 0.0


class PlacementBundle(Struct, frozen=True, kw_only=True):
    """A bundle of a placement group, and where it lies."""

    index: int
    cpus: int
    gpus: float = 0.0
    node: str
    """Ray's id."""


class NodeClaim(Struct, frozen=True, kw_only=True):
    """What a warden holds on a node."""

    node: RayNode
    cpus: int
    gpus: float = 0.0
    has_agent: bool = True
    bundle: int | None = None

    @property
    def amount(self) -> str:
        """What it holds, in words."""
        return f"{self.cpus} CPUs" + (f", {self.gpus:g} GPUs" if self.gpus else "")

    @property
    def rest(self) -> str:
        """What it leaves to Ray of a node that it claims, in words; empty if nothing."""
        if self.bundle is not None:
            return ""
        cpus, gpus = self.node.cpus - self.cpus, self.node.gpus - self.gpus
        parts = [f"{cpus} CPUs"] * (cpus > 0) + [f"{gpus:g} GPUs"] * (gpus > 0)
        return " and ".join(parts)


class ClaimSettings(Struct, frozen=True, kw_only=True):
    """What the user wants of the Ray cluster."""

    cpus: int | None = None
    with_gpu_nodes: bool = False
    with_gpus: bool = False
    """Claim the GPUs of every node, too."""
    here: str | None = None
    """Ray's id of the head's own node."""
    bundles: tuple[PlacementBundle, ...] | None = None


def node_of(told: Mapping[str, object]) -> RayNode | None:
    """A row of `ray.nodes()`; `None` if the node is dead."""
    if not told["Alive"]:
        return None
    resources = told["Resources"]
    assert isinstance(resources, Mapping)
    given, address = told["NodeName"], told["NodeManagerAddress"]
    return RayNode(
        id=str(told["NodeID"]),
        name=str(given if given and given != address else told["NodeManagerHostname"]),
        cpus=int(resources.get("CPU", 0)),
        gpus=float(resources.get("GPU", 0)),
    )


def planned(
    nodes: Iterable[RayNode], settings: ClaimSettings, *, held: Collection[str]
) -> tuple[list[NodeClaim], dict[RayNode, str]]:
    """The claims to hold, and why each other node is left out. `held` are ids claimed already.

    Of two nodes with one name the claimed one stays: Ray tells the end of a raylet late, so the
    other may be its successor, whose turn comes when the first is reported dead.
    """
    claims: list[NodeClaim] = []
    left: dict[RayNode, str] = {}
    taken: dict[str, RayNode] = {}
    for node in sorted(nodes, key=lambda node: (node.id not in held, node.id)):
        claim = _claim(node, settings)
        if isinstance(claim, str):
            left[node] = claim
        elif node.name in taken:
            left[node] = "another Ray node has this name; start it with another --node-name"
        else:
            taken[node.name] = node
            claims.append(claim)
    return claims, left


def _claim(node: RayNode, settings: ClaimSettings) -> NodeClaim | str:
    has_agent = node.id != settings.here
    if settings.bundles is not None:
        here = [bundle for bundle in settings.bundles if bundle.node == node.id and bundle.cpus]
        if not here:
            return "the placement group has no CPUs there"
        # One agent per machine: the largest bundle is its claim.
        most = max(here, key=lambda bundle: bundle.cpus)
        gpus = most.gpus if settings.with_gpus else 0.0
        return NodeClaim(
            node=node, cpus=most.cpus, gpus=gpus, has_agent=has_agent, bundle=most.index
        )
    if node.gpus and not (settings.with_gpu_nodes or settings.with_gpus) and has_agent:
        why = f"it has {node.gpus:g} GPUs"
        return f"{why}; add --ray-gpu-nodes to use its CPUs, --ray-gpus to claim both"
    cpus = min(node.cpus, settings.cpus or node.cpus)
    if not cpus:
        return "Ray has no CPUs there"
    gpus = node.gpus if settings.with_gpus else 0.0
    return NodeClaim(node=node, cpus=cpus, gpus=gpus, has_agent=has_agent)
