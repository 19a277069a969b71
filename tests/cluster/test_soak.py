"""Some hundred actions under every fault of the soak; `make soak` runs ten thousand."""

from pathlib import Path

import pytest
from hosts import CAN_MAKE_HOSTS, WHY_NOT

from artangram_bench.soak import Soak, soaked
from artangram_bench.soakfaults import FaultName

pytestmark = pytest.mark.skipif(not CAN_MAKE_HOSTS, reason=WHY_NOT)


async def test_every_action_ends_once_whatever_happens(tmp_path: Path) -> None:
    plan = Soak(
        actions=400,
        hosts=3,
        callers=10,
        net=79,
        fence_s=20.0,
        every_s=1.0,
        first=(
            FaultName.PARTITION,
            FaultName.RESET,
            FaultName.GLITCH,
            FaultName.HEAD_POWER,
            FaultName.RESET,
            FaultName.POWER,
        ),
    )
    found = await soaked(plan, tmp_path)
    assert found.violations == []
    assert found.is_sound
    assert all(found.faults[name] for name in plan.first)
