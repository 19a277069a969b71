"""One round of every kill of `bench kill` against a real service; `make soak` runs two hundred."""

from pathlib import Path

import pytest

from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe
from artangram_bench.kill import Victim, killed

pytestmark = pytest.mark.skipif(
    probe().level < IsolationLevel.NAMESPACES, reason="this machine cannot make namespaces"
)


async def test_every_action_ends_once_whatever_is_killed(tmp_path: Path) -> None:
    found = await killed(tmp_path, rounds=4, callers=4, seed=1)
    assert found.violations == []
    assert found.is_sound
    assert set(found.rounds) == set(Victim)
