"""Old objects are put aside: collections do not look at them, and cycles go in the end."""

import asyncio
import gc
import weakref

import pytest

from artangram.orchestrator import garbage


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.self = self


async def test_young_cycles_go_and_old_ones_wait_for_the_full_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "EVERY_S", 0.02)
    monkeypatch.setattr(garbage, "FULL_EVERY_S", 0.4)
    async with garbage.old_objects_aside():
        old, young = Knot(), Knot()
        seen_old, seen_young = weakref.ref(old), weakref.ref(young)
        del young
        await asyncio.sleep(0.1)
        assert seen_young() is None
        del old
        gc.collect()
        assert seen_old() is not None
        async with asyncio.timeout(10.0):
            while seen_old() is not None:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)
    assert gc.get_freeze_count() == 0
