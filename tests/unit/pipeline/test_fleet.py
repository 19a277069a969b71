"""Engines come and go, each in its slot: the real gateway, scripted engines, virtual time."""

import asyncio
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="slots know how to start engines of torch")

from artangram.core.errors import InfraFailed
from artangram.core.rollout.weights import Versions
from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import BadWeights, EngineGone
from artangram.gateway.engines.scripted import ScriptedEngine
from artangram.pipeline.engines import EngineSlot
from artangram.pipeline.fleet import LONGEST_S, MOST_FAILURES, EngineFleet
from artangram.weights import BadVersion, WeightStore, verified_pull

pytestmark = pytest.mark.looptime

HERE = Path(__file__).parent


class Yard:
    """Starts scripted engines, unless it is told to fail."""

    def __init__(self):
        self.failures = 0
        self.error = EngineGone("a planted failure")
        self.asked = count()

    async def start(self, name, version, directory):
        next(self.asked)
        if self.failures:
            self.failures -= 1
            raise self.error
        return ScriptedEngine(lambda request: range(3), name=name, version=version)


async def here(replica, version):
    return HERE


def a_fleet(pull=here):
    gateway = Gateway(on_lost=lambda engine, error: fleet.on_lost(engine, error))
    fleet = EngineFleet(versions=Versions(), pull=pull, gateway=gateway)
    return fleet, gateway


def classes(gateway):
    return sorted(replica.hardware for replica in gateway.replicas)


async def test_a_lost_engine_is_replaced_in_its_own_class():
    yard, (fleet, gateway) = Yard(), a_fleet()
    await fleet.open([EngineSlot("compute", yard.start), EngineSlot("bandwidth", yard.start)])
    lost = next(replica for replica in gateway.replicas if replica.hardware == "compute")
    gateway.give_up(lost.name, "planted")
    await asyncio.sleep(1.0)
    assert classes(gateway) == ["bandwidth", "compute"]
    assert fleet.lost == 1
    await fleet.aclose()


async def test_a_slot_is_tried_again_for_as_long_as_others_serve():
    broken, whole, (fleet, gateway) = Yard(), Yard(), a_fleet()
    await fleet.open([EngineSlot("compute", broken.start), EngineSlot("bandwidth", whole.start)])
    broken.failures = MOST_FAILURES + 3
    gateway.give_up(next(r.name for r in gateway.replicas if r.hardware == "compute"), "planted")
    await asyncio.sleep(sum(2.0**n for n in range(MOST_FAILURES)))
    assert classes(gateway) == ["bandwidth"]
    assert not fleet.failed.done()
    await asyncio.sleep(4 * LONGEST_S)
    assert classes(gateway) == ["bandwidth", "compute"]
    await fleet.aclose()


async def test_a_run_without_engines_is_told_so():
    yard, (fleet, gateway) = Yard(), a_fleet()
    await fleet.open([EngineSlot("compute", yard.start)])
    yard.failures = MOST_FAILURES
    gateway.give_up(gateway.replicas[0].name, "planted")
    with pytest.raises(EngineGone, match=f"{MOST_FAILURES} times; the last time: a planted"):
        await asyncio.wait_for(fleet.failed, 60.0)
    await fleet.aclose()


async def test_a_start_that_fails_in_any_way_is_tried_again():
    yard, (fleet, gateway) = Yard(), a_fleet()
    await fleet.open([EngineSlot("compute", yard.start)])
    yard.failures, yard.error = 2, OSError(11, "too many processes")
    gateway.give_up(gateway.replicas[0].name, "planted")
    await asyncio.sleep(10.0)
    assert classes(gateway) == ["compute"]
    await fleet.aclose()


async def test_an_engine_that_cannot_load_what_it_missed_is_closed_and_counts_as_none():
    yard, (fleet, gateway) = Yard(), a_fleet()
    made = []

    async def start(name, version, directory):
        engine = await yard.start(name, version, directory)
        if fleet.lost:  # The trainer goes on while it starts, and its weights are bad.
            fleet._versions.announce(fleet._versions.current + 1)
            engine.load = unloadable
            made.append(engine)
        return engine

    await fleet.open([EngineSlot("compute", start)])
    gateway.give_up(gateway.replicas[0].name, "planted")
    with pytest.raises(EngineGone, match=f"{MOST_FAILURES} times; the last time: planted"):
        await asyncio.wait_for(fleet.failed, 600.0)
    assert fleet.engines == ()
    assert len(made) == MOST_FAILURES
    for engine in made:
        with pytest.raises(EngineGone, match="it was closed"):
            await engine.pause()
    await fleet.aclose()


async def unloadable(version, path):
    raise BadWeights("planted")


def a_store(place):
    store = WeightStore(place)
    store.publish_with(0, lambda directory: (directory / "weights").write_bytes(b"1234"))
    return store


@pytest.mark.looptime(False)  # Files are read in a thread.
async def test_a_replacement_starts_only_with_weights_that_are_what_was_published(tmp_path):
    store, yard = a_store(tmp_path), Yard()
    fleet, _ = a_fleet(verified_pull(store, reads_again=True))
    await fleet.open([EngineSlot("compute", yard.start)])
    (store.path(0) / "weights").write_bytes(b"1235")
    with pytest.raises(BadVersion, match="is not what was published"):
        await fleet.open([EngineSlot("compute", yard.start)])
    assert next(yard.asked) == 1  # The second was not even started.
    await fleet.aclose()


async def test_an_engine_that_has_another_version_than_it_was_started_with_is_closed():
    yard, (fleet, gateway) = Yard(), a_fleet()
    made = []

    async def start(name, version, directory):
        made.append(await yard.start(name, version + 7, directory))
        return made[0]

    with pytest.raises(InfraFailed, match="was given version 0 and reports version 7"):
        await fleet.open([EngineSlot("compute", start)])
    assert gateway.replicas == ()
    with pytest.raises(EngineGone, match="it was closed"):
        await made[0].pause()
    await fleet.aclose()


async def test_an_engine_that_ignores_what_it_missed_is_closed():
    yard, (fleet, gateway) = Yard(), a_fleet()

    async def start(name, version, directory):
        engine = await yard.start(name, version, directory)
        fleet._versions.announce(fleet._versions.current + 1)
        engine.load = ignores
        return engine

    with pytest.raises(InfraFailed, match="was given version 1 and reports version 0"):
        await fleet.open([EngineSlot("compute", start)])
    assert gateway.replicas == ()
    await fleet.aclose()


async def ignores(version, path):
    """Say yes and do nothing."""
