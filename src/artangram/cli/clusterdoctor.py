"""`artangram doctor --cluster`: every node of a running service, what is wrong and what to do."""

import asyncio

from artangram.cli.client import answering, client, service_url
from artangram.cli.output import Printer
from artangram.managers.examination import DirectoryInfo, NodeExamination
from artangram.orchestrator.diagnosis import ClusterDiagnosis, Finding, NodeDiagnosis

_COLUMNS = (
    *("node", "verdict", "artangram", "python", "protocol", "clock", "round trip", "bandwidth"),
    *("cores", "memory free", "control groups", "sandboxes on", "scratch on", "providers"),
)


def examine(output: Printer, url: str | None, token: str | None) -> bool:
    """Print what every node says about itself. Is all of it well?"""
    found = asyncio.run(_diagnosed(service_url(url), token))
    output.table("nodes", _COLUMNS, [_row(node) for node in found.nodes])
    journal = "in memory" if found.journal is None else _directory(found.journal)
    said = f"head: artangram {found.version}, Python {found.python}; journal: {journal}"
    output.console.print(said, soft_wrap=True)
    findings = [("head", one) for one in found.findings]
    findings += [(node.node, one) for node in found.nodes for one in node.findings]
    for where, one in sorted(findings, key=lambda found: not found[1].is_wrong):
        _print(output, where, one)
    if found.is_well:
        output.console.print("Nothing is wrong.", soft_wrap=True)
    output.json(found)
    return found.is_well


def _print(output: Printer, where: str, one: Finding) -> None:
    mark = "wrong" if one.is_wrong else "note "
    output.console.print(f"{mark} {where}: {one.problem}\n      to do: {one.fix}", soft_wrap=True)


def _row(node: NodeDiagnosis) -> list[str]:
    verdict = "well" if node.is_well else "wrong"
    about = node.examination
    if about is None:
        return [node.node, verdict, *("?" for _ in _COLUMNS[2:])]
    disks = {one.purpose: _directory(one) for one in about.directories}
    return [
        *(node.node, verdict, about.version, about.python, str(about.protocol)),
        *(_clock(node.clock_ahead_s), _shown(node.round_trip_s, 1000, "ms")),
        *(_shown(node.mb_per_s, 1, "MB/s"), f"{node.cores} of {about.cores}"),
        f"{about.free_memory_mb} of {about.memory_mb} MB",
        *(_control_groups(about), disks.get("sandboxes", "?"), disks.get("scratch", "?")),
        ", ".join(about.providers),
    ]


def _clock(ahead_s: float | None) -> str:
    return "?" if ahead_s is None else f"{ahead_s:+.3f} s"


def _shown(value: float | None, times: float, unit: str) -> str:
    return "?" if value is None else f"{times * value:.3g} {unit}"


def _control_groups(about: NodeExamination) -> str:
    groups = about.control_groups
    if groups is None:
        return "-"
    return groups.detail.split(",")[0] if groups.available else "none"


def _directory(one: DirectoryInfo) -> str:
    return f"{one.filesystem}, {one.free_mb / 1024:.1f} GB free"


async def _diagnosed(url: str, token: str | None) -> ClusterDiagnosis:
    async with answering(url), client(url, token) as one:
        return await one.diagnose()
