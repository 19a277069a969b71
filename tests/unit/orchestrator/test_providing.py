"""A trajectory finds its provider when it is opened, or is refused there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, TrajectoryId
from artangram.managers.agent import SandboxSpec
from artangram.managers.local import LocalAgent
from artangram.orchestrator.client import Client
from artangram.orchestrator.errors import problem_of, raised
from artangram.orchestrator.local import local
from artangram.orchestrator.providing import provided, provider_labels
from artangram.orchestrator.records import Opening
from artangram.sandbox.capabilities import Ability
from artangram.sandbox.errors import NotCapable
from artangram.sandbox.fake import FakeProvider
from artangram.sandbox.protocol import EngineImage, HostImage, Snapshot

IMAGE = EngineImage(name="debian")
PLAIN = frozenset(Ability) - {Ability.ENGINE_IMAGES}


def usual() -> FakeProvider:
    return FakeProvider(kind="namespace", abilities=PLAIN)


@asynccontextmanager
async def a_cluster(*providers: FakeProvider) -> AsyncIterator[Client]:
    async with local(provider=providers, cores=1, memory_mb=4096) as client:
        yield client


async def test_an_engine_image_is_refused_at_open_where_no_engine_is() -> None:
    async with a_cluster(usual()) as client:
        with pytest.raises(NotCapable, match="name that under `provider:`"):
            await client.trajectory(source=IMAGE).open()
        assert (await client.status()).trajectories == 0


@pytest.mark.parametrize("lacking", sorted(frozenset(Ability) - {Ability.FILE_IMAGES}))
async def test_what_a_provider_cannot_do_is_refused_at_open(lacking: Ability) -> None:
    asked = {
        Ability.ENGINE_IMAGES: {"source": IMAGE},
        Ability.PROXY: {"network": ["pypi.org"]},
        Ability.DISK: {"storage": "disk"},
        Ability.USERS: {"user": "agent"},
    }
    weak = FakeProvider(abilities=frozenset(Ability) - {lacking})
    async with a_cluster(weak) as client:
        with pytest.raises(NotCapable, match=f"no {lacking.value}; "):
            await client.trajectory(**asked[lacking]).open()  # type: ignore[arg-type]


async def test_providers_stand_side_by_side() -> None:
    first, second = usual(), FakeProvider(kind="container")
    async with a_cluster(first, second) as client:
        async with client.trajectory() as t:
            assert (await t.run(["true"])).ok
            assert (len(first.live), len(second.live)) == (2, 0)  # One of them is kept ready.
        async with client.trajectory(provider="container") as t:
            assert (await t.run(["true"])).ok
            assert len(second.live) == 2


async def test_an_image_that_only_one_provider_takes_is_made_by_that_one() -> None:
    first, second = usual(), FakeProvider(kind="container")
    async with a_cluster(first, second) as client, client.trajectory(source=IMAGE) as t:
        assert (await t.run(["true"])).ok
        assert not first.live
        assert second.live


async def test_siblings_of_a_snapshot_are_made_by_the_provider_that_has_it() -> None:
    async with a_cluster(usual(), FakeProvider(kind="container")) as client:
        async with client.trajectory(provider="container") as t:
            await t.write("a", b"1")
            taken = await t.snapshot()
        assert taken.provider == "container"
        async with client.trajectory(source=taken) as sibling:
            assert await sibling.read("a") == b"1"
        with pytest.raises(BadInput, match="made by 'container'"):
            await client.trajectory(source=taken, provider="namespace").open()


async def test_a_provider_that_no_node_has_is_refused_by_name() -> None:
    async with a_cluster(usual()) as client:
        with pytest.raises(NotCapable, match="no node has the provider 'podman', they have name"):
            await client.trajectory(provider="podman").open()


async def test_two_providers_of_one_kind_are_refused() -> None:
    with pytest.raises(BadInput, match="namespace, namespace"):
        async with a_cluster(usual(), usual()):
            pass


def an_opening(**place: object) -> Opening:
    spec = SandboxSpec(**place)  # type: ignore[arg-type]
    return Opening(trajectory=TrajectoryId("t"), place=spec)


async def test_where_only_some_nodes_can_it_is_bound_to_those_by_a_label() -> None:
    agents = {
        NodeId("a"): LocalAgent(NodeId("a"), usual(), now=lambda: 0.0),
        NodeId("b"): LocalAgent(NodeId("b"), FakeProvider(kind="container"), now=lambda: 0.0),
    }
    assert provided(an_opening(), agents) == an_opening()
    bound = provided(an_opening(source=IMAGE), agents)
    assert bound.place.provider == "container"
    assert bound.selector == provider_labels(["container"])
    sibling = provided(an_opening(source=Snapshot(name="s", node="a")), agents)
    assert sibling.selector == provider_labels(["namespace"])
    assert provider_labels(["strongest"]) == provider_labels(["namespace"])
    assert isinstance(provided(an_opening(), {}).place.source, HostImage)


def test_over_http_the_refusal_is_the_same() -> None:
    problem, status = problem_of(NotCapable("no engine; install one"))
    assert status == 422
    again = raised(problem)
    assert type(again) is NotCapable
    assert str(again) == "no engine; install one"
