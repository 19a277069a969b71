"""What `artangram doctor --cluster` finds: judged from what nodes say, measured on virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from artangram.core.ids import NodeId
from artangram.managers.agent import AgentGone, Population
from artangram.managers.examination import DirectoryInfo, NodeExamination
from artangram.managers.local import LocalAgent
from artangram.managers.selfexamination import directory_info
from artangram.orchestrator.diagnosis import ClusterDiagnosis, NodeDiagnosis, judged
from artangram.orchestrator.examining import PATIENCE_S, examine_cluster
from artangram.orchestrator.records import NodeState, NodeStatus
from artangram.sandbox.capabilities import Feature
from artangram.sandbox.fake import FakeProvider
from artangram.testing.fakes import fake_cluster

WELL = NodeExamination(
    version="1.0",
    python="3.12.1",
    protocol=2,
    unix_s=0.0,
    cores=8,
    memory_mb=16_000,
    free_memory_mb=8_000,
    providers=("namespace",),
    control_groups=Feature(name="cgroups", available=True),
)


def a_directory(purpose: str, filesystem: str, *, free_mb: int = 50_000) -> DirectoryInfo:
    return DirectoryInfo(
        purpose=purpose, path="/there", filesystem=filesystem, free_mb=free_mb, total_mb=99_000
    )


def a_node(about: NodeExamination | None = WELL, **more: Any) -> NodeDiagnosis:
    given = {"cores": 8, "memory_mb": 12_000, "round_trip_s": 0.001, "mb_per_s": 100.0, **more}
    return NodeDiagnosis(node=NodeId("n"), examination=about, **given)


def found(node: NodeDiagnosis) -> list[tuple[bool, str]]:
    """Is it wrong, and how it is told, problem and fix."""
    cluster = judged(ClusterDiagnosis(version="1.0", python="3.12.9", nodes=(node,)))
    (node,) = cluster.nodes
    assert cluster.is_well == all(not one.is_wrong for one in node.findings)
    return [(one.is_wrong, f"{one.problem}; {one.fix}") for one in node.findings]


def test_a_node_that_is_well_has_no_findings() -> None:
    assert found(a_node()) == []


NO_GROUPS = Feature(name="cgroups", available=False, detail="not root", how="run as root")


@pytest.mark.parametrize(
    ("said", "is_wrong", "told"),
    [
        ({"version": "0.9"}, True, "artangram 0.9, and the head 1.0"),
        ({"python": "3.11.4"}, False, "Python 3.11.4"),
        ({"core_limit": 2.5}, True, "give --cores 2"),
        ({"core_limit": 0.5}, True, "give --cores 1"),
        ({"memory_limit_mb": 4000}, True, "its container has 4000 MB; give --memory-mb 4000"),
        ({"memory_mb": 9000}, True, "its machine has 9000 MB"),
        ({"free_memory_mb": 100}, True, "100 MB of its memory are free"),
        ({"control_groups": NO_GROUPS}, False, "not root"),
        ({"directories": (a_directory("sandboxes", "nfs4"),)}, True, "nfs4"),
        ({"directories": (a_directory("scratch", "tmpfs", free_mb=60),)}, True, "--shm-size"),
        ({"directories": (a_directory("sandboxes", "ext4", free_mb=9),)}, True, "9 MB of 99000"),
    ],
)
def test_what_a_node_says_is_judged(said: dict[str, Any], is_wrong: bool, told: str) -> None:
    ((is_so, text),) = found(a_node(structs.replace(WELL, **said)))
    assert (is_so, told in text) == (is_wrong, True), text


@pytest.mark.parametrize(
    ("measured", "is_wrong", "told"),
    [
        ({"clock_ahead_s": 7.0}, True, "7.0 s ahead of the head's"),
        ({"clock_ahead_s": -7.0}, True, "7.0 s behind the head's"),
        ({"round_trip_s": 0.2}, False, "200 ms"),
        ({"mb_per_s": 2.0}, False, "2.0 MB/s"),
        ({"about": None}, True, "it does not answer"),
    ],
)
def test_what_was_measured_is_judged(measured: dict[str, Any], is_wrong: bool, told: str) -> None:
    ((is_so, text),) = found(a_node(**measured))
    assert (is_so, told in text) == (is_wrong, True), text


def test_a_clock_is_not_blamed_for_what_a_slow_answer_hides() -> None:
    findings = found(a_node(clock_ahead_s=7.0, round_trip_s=6.0))
    assert [is_wrong for is_wrong, _ in findings] == [False], "only the slow answer"


@pytest.mark.parametrize(
    ("filesystem", "verdicts"),
    [("ext4", []), ("tmpfs", [False]), ("nfs", [True]), ("fuse.sshfs", [True])],
)
def test_a_journal_belongs_on_a_disk(filesystem: str, verdicts: list[bool]) -> None:
    journal = a_directory("journal", filesystem)
    head = judged(ClusterDiagnosis(version="1.0", python="3.12", journal=journal))
    assert [one.is_wrong for one in head.findings] == verdicts
    assert head.is_well == (True not in verdicts)


def test_the_kind_of_a_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    inner = tmp_path / "a b"
    inner.mkdir()
    mounts = tmp_path / "mountinfo"
    escaped = str(inner).replace(" ", "\\040")
    mounts.write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        f"2 1 0:2 / {tmp_path} rw shared:1 - ext4 /dev/sda rw\n"
        f"3 1 0:3 / {escaped} rw - xfs /dev/sdb rw\n"
        f"4 1 0:4 / {tmp_path}/a rw - nfs far:/ rw\n"
    )
    kinds = [
        directory_info("journal", path, mounts=mounts).filesystem
        for path in (inner / "not" / "there", tmp_path, tmp_path.parent)
    ]
    assert kinds == ["xfs", "ext4", "overlay"]


class FarAgent(LocalAgent):
    """Answers late, by another clock, and takes a second for each megabyte."""

    def __init__(self, name: str, *, after_s: float, clock_ahead_s: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(NodeId(name), FakeProvider(), now=self._loop.time)
        self._after_s, self._ahead_s = after_s, clock_ahead_s

    async def ping(self) -> Population:
        await asyncio.sleep(self._after_s)
        return await super().ping()

    async def examine(self, data: bytes = b"") -> NodeExamination:
        await asyncio.sleep(self._after_s / 2 + len(data) / 1e6)
        about = structs.replace(WELL, unix_s=self._loop.time() + self._ahead_s)
        await asyncio.sleep(self._after_s / 2)
        return about


class GoneAgent(FarAgent):
    async def ping(self) -> Population:
        raise AgentGone("it has just ended")


def a_status(name: str, **more: Any) -> NodeStatus:
    return NodeStatus(node=name, running=0, cores_used=0, cores=4, memory_mb=100, **more)


@pytest.mark.looptime
async def test_clock_round_trip_and_bandwidth_are_measured_on_the_way() -> None:
    agents = {NodeId("far"): FarAgent("far", after_s=0.1, clock_ahead_s=60.0)}
    cluster = await examine_cluster(
        [a_status("far")], agents, journal=None, now=asyncio.get_running_loop().time
    )
    (node,) = cluster.nodes
    assert node.round_trip_s == pytest.approx(0.1)
    assert node.clock_ahead_s == pytest.approx(60.0, abs=0.01)
    assert node.mb_per_s == pytest.approx(2 * 0.262144 / (0.1 + 0.262144), rel=0.01)
    assert not cluster.is_well


@pytest.mark.looptime
async def test_nodes_that_do_not_answer_are_told_and_delay_the_others_no_further() -> None:
    loop = asyncio.get_running_loop()
    agents = {
        NodeId("well"): FarAgent("well", after_s=0.01),
        NodeId("stuck"): FarAgent("stuck", after_s=1e6),
        NodeId("gone"): GoneAgent("gone", after_s=0.0),
        NodeId("suspect"): FarAgent("suspect", after_s=0.0),
    }
    nodes = [a_status(name) for name in ("well", "stuck", "gone", "not there")]
    nodes.append(a_status("suspect", state=NodeState.SUSPECT))
    began_at = loop.time()
    cluster = await examine_cluster(nodes, agents, journal=None, now=loop.time)
    answered = {node.node for node in cluster.nodes if node.examination is not None}
    assert answered == {"well"}
    assert loop.time() - began_at == pytest.approx(PATIENCE_S, rel=0.1)
    assert not cluster.is_well


async def test_a_client_diagnoses_the_cluster_of_its_own_process() -> None:
    async with fake_cluster() as client:
        (node,) = (await client.diagnose()).nodes
        about = node.examination
        assert about is not None
        assert (about.providers, about.data) == (("fake",), b"")
        assert {one.purpose for one in about.directories} == {"sandboxes", "scratch"}
        assert all(one.filesystem != "unknown" for one in about.directories)
