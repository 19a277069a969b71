"""What the machine offers: probing, refusing, and the other version of control groups."""

# ruff: noqa: ASYNC240 - a test may block

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from busy_machine import at_best

from artangram import scratchdir
from artangram.sandbox import (
    Command,
    HostImage,
    IsolationLevel,
    Limits,
    NamespaceProvider,
    NotCapable,
)
from artangram.sandbox.capabilities import Capabilities, Feature
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.namespace import cgroups, cores
from artangram.sandbox.namespace import provider as providers
from artangram.sandbox.namespace.cgroups import Groups, Hierarchies, find_hierarchies
from artangram.sandbox.namespace.cores import GroupCores, as_list
from artangram.sandbox.probe import probe

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_probe_says_how_to_get_what_is_missing() -> None:
    found = probe()
    assert {feature.name for feature in found.features} >= {"linux", "seccomp", "namespaces"}
    assert all(feature.how for feature in found.missing())
    assert all(not feature.how for feature in found.features if feature.available)


async def test_probe_leaves_nothing_behind(provider: NamespaceProvider) -> None:
    placement = {path.parent for path in map(Path, groups_file(provider))}
    assert placement
    probe()
    # By name: other providers of this machine come and go.
    assert not [
        path
        for scratchdir in placement
        for path in scratchdir.glob(f"artangram-probe-{os.getpid()}*")
    ]


async def test_a_probe_tries_where_the_next_one_sweeps_if_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    def killed(*_: object, **__: object) -> None:
        places.extend(tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(scratchdir, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(subprocess, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        probe()
    assert [place.name.startswith(scratchdir.PREFIX) for place in places] == [True]
    assert not list(tmp_path.iterdir())


def groups_file(provider: NamespaceProvider) -> list[str]:
    return (provider.run_path / "groups").read_text().splitlines()


@pytest.mark.parametrize(
    "lowest", [IsolationLevel.PROCESS, IsolationLevel.NAMESPACES, IsolationLevel.CGROUPS]
)
async def test_weaker_machine_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, lowest: IsolationLevel, tmp_path: Path
) -> None:
    missing = Feature(name="namespaces", available=False, detail="EPERM", how="ask the admin")
    weak = Capabilities(level=IsolationLevel.SECCOMP, features=(missing,))
    monkeypatch.setattr(providers, "probe", lambda: weak)
    with pytest.raises(NotCapable, match="ask the admin"):
        await NamespaceProvider.open(lowest=lowest, state_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_hierarchies_of_both_versions_are_found(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory,pids:/cluster\n1:name=systemd:/\n0::/app\n")
    (tmp_path / "mountinfo").write_text(
        "30 25 0:26 / /cg/mem rw - cgroup cgroup rw,memory,pids\n"
        f"31 25 0:27 / {tmp_path}/v2 rw - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "v2/app").mkdir(parents=True)
    (tmp_path / "v2/app/cgroup.controllers").write_text("cpuset memory pids\n")
    found = find_hierarchies(tmp_path)
    assert found.v1 == {"memory": Path("/cg/mem/cluster"), "pids": Path("/cg/mem/cluster")}
    assert found.v2 == tmp_path / "v2/app"
    assert found.v2_controllers == {"cpuset", "memory", "pids"}


async def test_version_2_has_one_group_per_sandbox(tmp_path: Path) -> None:
    """No machine of ours has controllers in version 2: a directory stands in for it."""
    controllers = frozenset({"memory", "pids", "cpuset"})
    groups = Groups(Hierarchies(v2=tmp_path, v2_controllers=controllers), "me")
    scratchdir = tmp_path / "artangram-me"
    box = groups.of("box-1", Limits(memory_mb=64, disk_mb=8, processes=5))
    [(directory, settings, join)] = box.plan()
    assert directory == str(scratchdir / "box-1")
    assert settings == {"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "6"}
    assert join == "cgroup.procs"


async def test_version_2_narrows_the_group_while_a_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "all_cores", lambda: frozenset(range(4)))
    controllers = frozenset({"memory", "pids", "cpuset"})
    groups = Groups(Hierarchies(v2=tmp_path, v2_controllers=controllers), "me")
    box = groups.of("box-1", Limits())
    Path(box.cpuset).mkdir(parents=True)
    cpus = Path(box.cpuset) / "cpuset.cpus"
    cpus.touch()
    (Path(box.cpuset) / "cgroup.threads").write_text("")
    hold = GroupCores().lend(box, 1, cores=(3, 1))
    assert cpus.read_text() == "1,3"
    cpus.write_text("")
    hold.resize((1,))
    assert cpus.read_text() == "1"
    assert as_list((2, 0)) == "0,2"


async def test_first_freezer_serves_where_there_is_no_second(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path
) -> None:
    found = find_hierarchies()
    if "freezer" not in found.v1:
        pytest.skip("this machine has no freezer of the first version")
    old = Hierarchies(v1=found.v1)
    monkeypatch.setattr(providers, "find_hierarchies", lambda: old)
    provider = await NamespaceProvider.open(state_dir=state_dir)
    box = await provider.create(HostImage())
    ticking = "while true; do echo x >> /work/ticks; sleep 0.01; done &"
    begun = "until [ -s /work/ticks ]; do sleep 0.01; done"
    await box.run(Command(argv=("sh", "-c", ticking + begun), keep=True))

    async def ticks() -> int:
        before = len(await box.read("ticks"))
        await asyncio.sleep(0.3)
        return len(await box.read("ticks")) - before

    await at_best(ticks, below=1)
    groups = [Path(line) for line in groups_file(provider)]
    await provider.close()
    assert not [group for group in groups if group.exists()]


def a_freezer(
    monkeypatch: pytest.MonkeyPatch, *, fails: int
) -> tuple[cgroups.SandboxCgroups, list[str]]:
    """One that stops half-way so often, as the kernel's may; and what is written to it."""
    written: list[str] = []

    def read(_: str) -> bytes:
        return b"FROZEN" if written.count("FROZEN") > fails else b"FREEZING"

    monkeypatch.setattr(cgroups, "write_setting", lambda _, state: written.append(state))
    monkeypatch.setattr(cgroups, "read_setting", read)
    nowhere = dict.fromkeys(("freezer", "memory"), Path("/nowhere"))
    groups = Groups(Hierarchies(v1=nowhere), "me")
    return groups.of("box-1", Limits()), written


async def test_a_first_freezer_that_stops_half_way_is_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, written = a_freezer(monkeypatch, fails=2)
    box.freeze(1)
    assert written == ["FROZEN", "THAWED", "FROZEN", "THAWED", "FROZEN"]


async def test_a_first_freezer_that_never_ends_leaves_nobody_half_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, written = a_freezer(monkeypatch, fails=1000)
    with pytest.raises(SandboxError, match="did not freeze"):
        box.freeze(1)
    assert written[-1] == "THAWED"
