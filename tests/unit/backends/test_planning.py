"""Which Ray nodes get a warden, and what it claims."""

from typing import Any

from artangram.backends.ray.planning import (
    ClaimSettings,
    NodeClaim,
    PlacementBundle,
    RayNode,
    node_of,
    planned,
)


def a_node(name: str, *, cpus: int = 8, gpus: float = 0.0, id: str = "") -> RayNode:
    return RayNode(id=id or f"id-{name}", name=name, cpus=cpus, gpus=gpus)


def a_row(**more: Any) -> dict[str, Any]:
    """Of `ray.nodes()`."""
    row = {
        "NodeID": "a1",
        "Alive": True,
        "NodeName": "10.0.0.7",
        "NodeManagerAddress": "10.0.0.7",
        "NodeManagerHostname": "seven",
        "Resources": {"CPU": 8.0, "GPU": 2.0, "memory": 1e9},
    }
    return {**row, **more}


def claims(nodes: list[RayNode], settings: ClaimSettings, held: set[str] | None = None) -> Any:
    found, left = planned(nodes, settings, held=held or set())
    return [claim.node.name for claim in found], {node.name: why for node, why in left.items()}


def test_a_row_of_ray_is_a_node_named_after_its_host() -> None:
    assert node_of(a_row()) == RayNode(id="a1", name="seven", cpus=8, gpus=2.0)


def test_a_name_that_was_given_to_ray_is_kept() -> None:
    node = node_of(a_row(NodeName="worker-7"))
    assert node is not None
    assert node.name == "worker-7"


def test_a_dead_node_is_no_node() -> None:
    assert node_of(a_row(Alive=False)) is None


def test_nodes_with_gpus_are_left_out_and_named() -> None:
    names, left = claims([a_node("a"), a_node("b", gpus=4)], ClaimSettings())
    assert names == ["a"]
    why = "it has 4 GPUs; add --ray-gpu-nodes to use its CPUs, --ray-gpus to claim both"
    assert left == {"b": why}


def test_nodes_with_gpus_are_used_when_asked_for() -> None:
    names, left = claims([a_node("b", gpus=4)], ClaimSettings(with_gpu_nodes=True))
    assert (names, left) == (["b"], {})


def test_gpus_stay_with_ray_unless_they_are_asked_for() -> None:
    nodes = [a_node("a", cpus=8, gpus=4), a_node("b", cpus=2)]
    for settings, gpus, rests in (
        (ClaimSettings(with_gpu_nodes=True), [0, 0], ["4 GPUs", ""]),
        (ClaimSettings(with_gpu_nodes=True, cpus=6), [0, 0], ["2 CPUs and 4 GPUs", ""]),
        (ClaimSettings(with_gpus=True), [4, 0], ["", ""]),
    ):
        found, left = planned(nodes, settings, held=())
        assert [claim.gpus for claim in found] == gpus
        assert [claim.rest for claim in found] == rests
        assert left == {}
    assert [claim.amount for claim in found] == ["8 CPUs, 4 GPUs", "2 CPUs"]


def test_gpus_of_a_bundle_are_claimed_when_asked_for() -> None:
    bundle = PlacementBundle(index=0, cpus=3, gpus=1, node="id-a")
    for is_asked in (False, True):
        settings = ClaimSettings(with_gpus=is_asked, bundles=(bundle,))
        (claim,), _ = planned([a_node("a", gpus=8)], settings, held=())
        assert (claim.cpus, claim.gpus, claim.rest) == (3, float(is_asked), "")


def test_a_node_without_cpus_is_left_out() -> None:
    assert claims([a_node("a", cpus=0)], ClaimSettings()) == ([], {"a": "Ray has no CPUs there"})


def test_a_claim_has_all_cpus_or_as_many_as_wanted() -> None:
    nodes = [a_node("a", cpus=8), a_node("b", cpus=2)]
    found, _ = planned(nodes, ClaimSettings(cpus=4), held=())
    assert [claim.cpus for claim in found] == [4, 2]
    found, _ = planned(nodes, ClaimSettings(), held=())
    assert [claim.cpus for claim in found] == [8, 2]


def test_the_heads_own_node_is_claimed_without_an_agent_even_with_gpus() -> None:
    own = a_node("a", gpus=1)
    found, _ = planned([own], ClaimSettings(here=own.id), held=())
    assert found == [NodeClaim(node=own, cpus=8, has_agent=False)]


def test_of_two_nodes_with_one_name_the_claimed_one_stays() -> None:
    nodes = [a_node("a", id="1"), a_node("a", id="2")]
    for held, kept in ((set[str](), "1"), ({"2"}, "2")):
        found, left = planned(nodes, ClaimSettings(), held=held)
        assert [claim.node.id for claim in found] == [kept]
        assert ["--node-name" in why for why in left.values()] == [True]


def test_of_a_placement_group_only_its_bundles_are_claimed() -> None:
    nodes = [a_node("a", gpus=8), a_node("b"), a_node("c")]
    bundles = (
        PlacementBundle(index=0, cpus=1, node="id-a"),
        PlacementBundle(index=1, cpus=3, node="id-a"),
        PlacementBundle(index=2, cpus=0, node="id-b"),
    )
    found, left = planned(nodes, ClaimSettings(bundles=bundles), held=())
    assert found == [NodeClaim(node=nodes[0], cpus=3, bundle=1)]
    assert set(left.values()) == {"the placement group has no CPUs there"}
