"""What an agent reads of the limits of its container."""

from pathlib import Path

from artangram.managers.selfexamination import core_limit, memory_limit_mb
from artangram.sandbox.namespace.cgroups import Hierarchies


def a_group(path: Path, **settings: str) -> Path:
    path.mkdir(parents=True)
    for name, text in settings.items():
        (path / name.replace("_", ".", 1)).write_text(text + "\n")
    return path


def test_the_least_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    a_group(tmp_path / "pod", cpu_max="150000 100000", memory_max=str(64 << 20))
    own = a_group(tmp_path / "pod" / "agent", cpu_max="max 100000", memory_max="max")
    groups = Hierarchies(v2=own)
    assert (core_limit(groups), memory_limit_mb(groups)) == (1.5, 64)


def test_the_first_version_says_no_limit_with_numbers(tmp_path: Path) -> None:
    free = {
        "memory": a_group(tmp_path / "memory", memory_limit_in_bytes=str((1 << 63) - 4096)),
        "cpu": a_group(tmp_path / "cpu", cpu_cfs_quota_us="-1", cpu_cfs_period_us="100000"),
    }
    assert (core_limit(Hierarchies(v1=free)), memory_limit_mb(Hierarchies(v1=free))) == (None, None)
    bound = {
        "memory": a_group(tmp_path / "bound", memory_limit_in_bytes=str(96 << 20)),
        "cpu": a_group(tmp_path / "half", cpu_cfs_quota_us="50000", cpu_cfs_period_us="100000"),
    }
    groups = Hierarchies(v1=bound)
    assert (core_limit(groups), memory_limit_mb(groups)) == (0.5, 96)
