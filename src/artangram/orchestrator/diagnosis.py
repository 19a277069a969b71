"""Judges what nodes say about themselves: what is wrong, and what to do about it.

Pure: `examining` asks the nodes. A finding that is *wrong* loses work or will; the others only cost
speed or may surprise.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from artangram.core.ids import NodeId
from artangram.managers.examination import DirectoryInfo, NodeExamination

CLOCK_S = 5.0
"""Logs and files of two machines cannot be compared beyond this."""
SLOW_ROUND_TRIP_S = 0.05
SLOW_MB_PER_S = 10.0
"""A snapshot or weights of a gigabyte would take minutes."""
LEAST_DISK_MB = 1024
LEAST_SCRATCH_MB = 256
"""Containers often have a shared memory of 64 MB."""
LEAST_MEMORY_MB = 256
"""Below this an agent hibernates sandboxes all the time."""

_FAR = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "gpfs", "afs", "beegfs")
"""How the kinds of file systems begin that are on other machines."""
_PASSING = ("tmpfs", "ramfs", "overlay")


class Finding(Struct, frozen=True, kw_only=True):
    problem: str
    fix: str
    is_wrong: bool = True
    """Else it is only worth knowing."""


class NodeDiagnosis(Struct, frozen=True, kw_only=True):
    """One node: what it said, what was measured on the way, and what is wrong."""

    node: NodeId
    cores: int = 0
    """That it offers to the cluster."""
    memory_mb: int = 0
    """That it offers."""
    examination: NodeExamination | None = None
    """`None` if it did not answer."""
    round_trip_s: float | None = None
    clock_ahead_s: float | None = None
    """Of the orchestrator's, to about half of the round trip."""
    mb_per_s: float | None = None
    """There and back over the link that actions use."""
    findings: tuple[Finding, ...] = ()

    @property
    def is_well(self) -> bool:
        return not any(one.is_wrong for one in self.findings)


class ClusterDiagnosis(Struct, frozen=True, kw_only=True):
    version: str
    """Of the head, as all of these."""
    python: str
    journal: DirectoryInfo | None = None
    """`None` if it keeps none on a disk."""
    findings: tuple[Finding, ...] = ()
    nodes: tuple[NodeDiagnosis, ...] = ()

    @property
    def is_well(self) -> bool:
        return not any(f.is_wrong for f in self.findings) and all(n.is_well for n in self.nodes)


def judged(cluster: ClusterDiagnosis) -> ClusterDiagnosis:
    """`cluster` with what is wrong with it."""
    journal = () if cluster.journal is None else tuple(_directory(cluster.journal))
    nodes = (structs.replace(n, findings=tuple(_node(n, cluster))) for n in cluster.nodes)
    return structs.replace(cluster, findings=journal, nodes=tuple(nodes))


def _node(node: NodeDiagnosis, cluster: ClusterDiagnosis) -> Iterator[Finding]:
    about = node.examination
    if about is None:
        fix = "check its machine and the network, then the log of its agent"
        yield Finding(problem="it does not answer", fix=fix)
        return
    yield from _versions(about, cluster)
    yield from _clock(node)
    yield from _limits(node, about)
    for directory in about.directories:
        yield from _directory(directory)
    yield from _link(node)


def _versions(about: NodeExamination, head: ClusterDiagnosis) -> Iterator[Finding]:
    if about.version != head.version:
        problem = f"it runs artangram {about.version}, and the head {head.version}"
        yield Finding(problem=problem, fix="install the same version on both")
    if about.python.split(".")[:2] != head.python.split(".")[:2]:
        problem = f"it has Python {about.python}, and the head {head.python}"
        fix = "use one version: functions and objects may not travel between two"
        yield Finding(problem=problem, fix=fix, is_wrong=False)


def _clock(node: NodeDiagnosis) -> Iterator[Finding]:
    ahead_s, unsure_s = node.clock_ahead_s or 0.0, (node.round_trip_s or 0.0) / 2
    if abs(ahead_s) - unsure_s > CLOCK_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        problem = f"its clock is {abs(ahead_s):.1f} s {side} the head's"
        yield Finding(problem=problem, fix="keep it with chrony or systemd-timesyncd")


def _limits(node: NodeDiagnosis, about: NodeExamination) -> Iterator[Finding]:
    if about.core_limit is not None and about.core_limit < node.cores:
        problem = f"it offers {node.cores} cores, and its container may use {about.core_limit:g}"
        yield Finding(problem=problem, fix=f"give --cores {max(1, int(about.core_limit))}")
    most_mb = min(about.memory_mb, about.memory_limit_mb or about.memory_mb)
    if most_mb < node.memory_mb:
        what = "machine" if about.memory_limit_mb is None else "container"
        problem = f"it offers {node.memory_mb} MB, and its {what} has {most_mb} MB"
        yield Finding(problem=problem, fix=f"give --memory-mb {most_mb}")
    if about.free_memory_mb < LEAST_MEMORY_MB:
        problem = f"{about.free_memory_mb} MB of its memory are free"
        yield Finding(problem=problem, fix="offer less with --memory-mb, or end other programs")
    groups = about.control_groups
    if groups is not None and not groups.available:
        problem = f"it has no control groups ({groups.detail}): memory is limited by process only"
        yield Finding(problem=problem, fix=groups.how, is_wrong=False)


def _directory(one: DirectoryInfo) -> Iterator[Finding]:
    where = f"the directory of {one.purpose}, {one.path},"
    if one.purpose != "scratch" and one.filesystem.startswith(_FAR):
        problem = f"{where} is on {one.filesystem}, which has no safe locks"
        yield Finding(problem=problem, fix="use a local disk (ext4, xfs) or a block device")
    if one.purpose == "journal" and one.filesystem in _PASSING:
        problem = f"{where} is on {one.filesystem}, which may go with the machine or container"
        yield Finding(problem=problem, fix="give --state-dir on a disk", is_wrong=False)
    least = LEAST_SCRATCH_MB if one.purpose == "scratch" else LEAST_DISK_MB
    if one.free_mb < least:
        problem = f"{where} has {one.free_mb} MB of {one.total_mb} MB left"
        yield Finding(problem=problem, fix=_MORE_ROOM[one.purpose])


_MORE_ROOM = {
    "scratch": "give it at least 1 GB (docker: --shm-size 1g; Kubernetes: an emptyDir of Memory)",
    "sandboxes": "free some of it, or mount a larger disk there",
    "journal": "free some of it, or keep less (`keep` of the cluster's file)",
}


def _link(node: NodeDiagnosis) -> Iterator[Finding]:
    if node.round_trip_s is not None and node.round_trip_s > SLOW_ROUND_TRIP_S:
        problem = (
            f"its answer takes {1000 * node.round_trip_s:.0f} ms, which every action waits for"
        )
        fix = "move it nearer to the head, or look at what keeps its cores busy"
        yield Finding(problem=problem, fix=fix, is_wrong=False)
    if node.mb_per_s is not None and node.mb_per_s < SLOW_MB_PER_S:
        problem = f"its link carries {node.mb_per_s:.1f} MB/s: files and weights travel slowly"
        yield Finding(problem=problem, fix="look at the network between the two", is_wrong=False)
