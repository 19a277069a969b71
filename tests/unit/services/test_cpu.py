"""How cores become devices."""

import pytest

from artangram.core.errors import BadInput
from artangram.services import cpu_devices
from artangram.services.cpu import CpuDevice


def test_cores_are_divided_evenly_among_fewer_devices():
    assert cpu_devices((0, 1, 2, 3), count=2, memory_mb=9) == (
        CpuDevice(cores=(0, 1), threads=2, memory_mb=9),
        CpuDevice(cores=(2, 3), threads=2, memory_mb=9),
    )


def test_more_devices_than_cores_have_one_thread_each_that_runs_anywhere():
    anywhere = CpuDevice(cores=(0, 1), threads=1, memory_mb=9)
    assert cpu_devices((0, 1), count=3, memory_mb=9) == (anywhere, anywhere, anywhere)


@pytest.mark.parametrize(("cores", "count"), [((), 1), ((0,), 0)])
def test_no_devices_without_cores(cores: tuple[int, ...], count: int):
    with pytest.raises(BadInput, match="devices"):
        cpu_devices(cores, count=count, memory_mb=9)
