"""A new version goes into engines that serve meanwhile: the real gateway, scripted engines."""

import asyncio
from pathlib import Path

import pytest

from artangram.core.rollout.weights import Update, Versions
from artangram.gateway.engines.protocol import Sampling
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.gateway import Gateway
from artangram.weights import BadVersion, WeightStore, roll, verified_pull

pytestmark = pytest.mark.looptime

PATH = Path(__file__).parent


def a_fleet(*names: str) -> tuple[Gateway, list[ScriptedEngine]]:
    gateway = Gateway()
    pace = ScriptedPace(token_s=1.0, load_s=2.0)
    engines = [ScriptedEngine(lambda r: range(10), name=name, pace=pace) for name in names]
    for engine in engines:
        gateway.add(engine)
    return gateway, engines


def announced(version: int = 1) -> Versions:
    versions = Versions()
    versions.announce(version)
    return versions


async def pull(replica: str, version: int) -> Path:
    await asyncio.sleep(8.0)
    return PATH


async def generated(gateway: Gateway, name: str) -> list[int]:
    """The version of every token of one turn."""
    session = gateway.open(name)
    reply = await session.generate([1, 2, 3], Sampling(max_tokens=10))
    await session.close()
    return [span.version for span in reply.spans for _ in range(span.start, span.end)]


async def test_replicas_swap_one_at_a_time_and_pull_while_they_serve():
    gateway, engines = a_fleet("a", "b", "c")
    versions = announced()
    rolling = asyncio.create_task(roll(gateway, 1, pull=pull, versions=versions))
    paused = []
    while not rolling.done():
        await asyncio.sleep(0.25)
        paused.append(sum(engine.stats().is_paused for engine in engines))
    report = rolling.result()
    assert max(paused) == 1
    assert [engine.stats().version for engine in engines] == [1, 1, 1]
    assert report.exposed_s == pytest.approx(6.0)
    assert report.accumulated_s == pytest.approx(30.0)
    assert report.elapsed_s == pytest.approx(30.0)
    assert report.failed == ()


async def test_several_swap_at_once_if_asked():
    gateway, _ = a_fleet("a", "b", "c")
    report = await roll(gateway, 1, pull=pull, versions=announced(), at_once=3)
    assert report.elapsed_s == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("mode", "tokens"),
    [
        (Update.PAUSE, [0] * 4 + [1] * 6),
        (Update.ABORT, [0] * 4 + [1] * 6),
        (Update.DRAIN, [0] * 10),
    ],
)
async def test_requests_survive_an_update_and_every_token_names_its_version(mode, tokens):
    gateway, (engine,) = a_fleet("a")

    async def near(replica: str, version: int) -> Path:
        return PATH

    turn = asyncio.create_task(generated(gateway, "s"))
    await asyncio.sleep(4.5)
    report = await roll(gateway, 1, pull=near, versions=announced(), mode=mode)
    assert await turn == tokens
    assert not report.failed
    assert report.exposed_s == pytest.approx(2.0)  # the load; turns that drain are served
    assert not engine.stats().is_paused
    assert await generated(gateway, "next") == [1] * 10


async def test_a_replica_that_cannot_load_is_taken_out_and_its_turns_go_on():
    gateway, (bad, good) = a_fleet("bad", "good")
    bad.refuse(1)
    turns = [asyncio.create_task(generated(gateway, f"s{n}")) for n in range(4)]
    report = await roll(gateway, 1, pull=pull, versions=announced())
    assert report.failed == ("bad",)
    assert [replica.name for replica in gateway.replicas] == ["good"]
    assert [len(tokens) for tokens in await asyncio.gather(*turns)] == [10] * 4
    assert good.stats().version == 1


@pytest.mark.parametrize("fault", ["hang", "crash"])
async def test_a_replica_that_hangs_or_died_does_not_stop_the_others(fault: str):
    gateway, (bad, good) = a_fleet("bad", "good")
    getattr(bad, fault)()
    report = await roll(gateway, 1, pull=pull, versions=announced(), limit_s=20.0)
    assert report.failed == ("bad",)
    assert good.stats().version == 1
    assert [replica.name for replica in gateway.replicas] == ["good"]


@pytest.mark.parametrize("fault", ["hang", "crash"])
@pytest.mark.parametrize("mode", list(Update))
async def test_a_replica_that_fails_half_way_through_a_load_never_samples_again(mode, fault):
    gateway, (bad, _) = a_fleet("bad", "good")

    async def near(replica: str, version: int) -> Path:
        return PATH

    turns = [asyncio.create_task(generated(gateway, f"s{n}")) for n in range(4)]
    await asyncio.sleep(4.5)
    rolling = asyncio.create_task(
        roll(gateway, 1, pull=near, versions=announced(), mode=mode, limit_s=20.0)
    )
    while not bad.stats().is_paused:  # noqa: ASYNC110 - an engine tells nobody
        await asyncio.sleep(0.1)
    sampled = bad.stats().sampled_tokens
    getattr(bad, fault)()
    report = await rolling
    assert report.failed == ("bad",)
    assert [replica.name for replica in gateway.replicas] == ["good"]
    assert [len(tokens) for tokens in await asyncio.gather(*turns)] == [10] * 4
    assert bad.stats().sampled_tokens == sampled
    assert await generated(gateway, "next") == [1] * 10


async def test_an_engine_that_lies_about_its_version_is_taken_out():
    gateway, (engine,) = a_fleet("liar")

    async def load(version: int, path: Path) -> None:
        return None

    engine.load = load  # the fault: it answers, and keeps the old weights
    report = await roll(gateway, 1, pull=pull, versions=announced())
    assert report.failed == ("liar",)


async def test_a_cancelled_roll_leaves_no_replica_half_way():
    gateway, (engine, other) = a_fleet("a", "b")
    rolling = asyncio.create_task(roll(gateway, 1, pull=pull, versions=announced()))
    await asyncio.sleep(9.0)
    assert engine.stats().is_paused
    rolling.cancel()
    await asyncio.wait({rolling})
    assert rolling.cancelled()
    assert (engine.stats().version, engine.stats().is_paused) == (1, False)
    assert other.stats().version == 0


async def test_a_version_is_held_while_it_is_pulled():
    gateway, _ = a_fleet("a")
    versions = announced()
    rolling = asyncio.create_task(roll(gateway, 1, pull=pull, versions=versions))
    await asyncio.sleep(1.0)
    versions.announce(2)
    versions.go_live(2)
    assert versions.retire() == (0,)
    await rolling
    assert versions.retire() == (1,)


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (changed, "not what was published"),
        (truncated, "not what was published"),
        (Path.unlink, "No such file"),
    ],
)
async def test_a_corrupt_version_is_refused_and_no_replica_blamed(damage, problem, tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish_with(1, lambda place: (place / "weights").write_bytes(b"1234"))
    damage(store.path(1) / "weights")
    gateway, engines = a_fleet("a", "b")
    with pytest.raises(BadVersion, match=problem):
        await roll(gateway, 1, pull=verified_pull(store), versions=announced())
    assert [engine.stats().version for engine in engines] == [0, 0]
    assert not any(engine.stats().is_paused for engine in engines)
    assert len(gateway.replicas) == 2


async def test_a_good_version_is_read_once_for_all(tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish_with(1, lambda place: (place / "weights").write_bytes(b"1234"))
    gateway, engines = a_fleet("a", "b")
    await roll(gateway, 1, pull=verified_pull(store), versions=announced())
    assert [engine.stats().version for engine in engines] == [1, 1]
