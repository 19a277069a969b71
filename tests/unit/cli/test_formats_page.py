"""What docs/formats.md says is what the program reads and writes."""

import re
from pathlib import Path

import pytest
from msgspec import Struct, structs

from artangram.config.cluster import (
    ClusterFile,
    CpuEntry,
    FunctionsEntry,
    GpuEntry,
    JobEntry,
    QuotaEntry,
    ServiceEntry,
)
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.traceline import TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.report import SimReport

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")


def table(head: str) -> dict[str, str]:
    """The second column of a table by the names in its first."""
    rows = PAGE.split(f"| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    columns = [row.strip("|").split("|") for row in rows]
    return {name: row[1].strip() for row in columns for name in re.findall(r"`([^`]+)`", row[0])}


def fence(language: str) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]


def default_of(field: structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is None or field.default_factory is dict:
        return "none"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize(
    ("head", "record"),
    [
        ("`kind: cpu`", CpuEntry.spec),
        ("`kind: gpu`", GpuEntry.spec),
        ("`kind: quota`", QuotaEntry.spec),
        ("`kind: functions`", FunctionsEntry.spec),
        ("service", ServiceSpec),
        ("trajectory", TraceTrajectory),
    ],
)
def test_every_field_is_documented_with_its_default(head: str, record: type[Struct]):
    in_files = {"nodes": "1", "pool": "none"}  # What a file may leave out.
    wanted = {f.name: in_files.get(f.name, default_of(f)) for f in structs.fields(record)}
    assert {name: value for name, value in table(head).items() if name in wanted} == wanted


@pytest.mark.parametrize(
    ("head", "record"),
    [
        ("key", ClusterFile),
        ("`kind: cpu`", CpuEntry),
        ("`kind: gpu`", GpuEntry),
        ("`kind: quota`", QuotaEntry),
        ("`kind: functions`", FunctionsEntry),
        ("service", ServiceEntry),
        ("a job", JobEntry),
    ],
)
def test_the_keys_of_a_cluster_are_those_of_the_page(head: str, record: type[Struct]):
    assert set(table(head)) == set(record.__struct_fields__)


def test_every_field_of_turns_actions_and_reports_is_documented():
    assert set(table("turn")) == set(TraceTurn.__struct_fields__)
    flat = {"elastic", "speedup", "service"}  # parts of `needs` in the record
    assert set(table("action")) == set(TraceAction.__struct_fields__) | flat
    assert set(SimReport.__struct_fields__) <= set(table("field"))


def test_every_policy_of_the_page_exists():
    names = [name for name in table("name") if name not in {"pods:REQUEST/LIMIT", "name"}]
    for name in names:
        policy(name.replace("N", "2").replace("DEGREE", "2"))
    assert "elastic" in names


def test_the_examples_run(run, tmp_path):
    trace, cluster = tmp_path / "t.jsonl", tmp_path / "c.yaml"
    trace.write_text(fence("json"))
    cluster.write_text(fence("yaml"))
    report = run("simulate", "--cluster", cluster, "--trace", trace, "--json", "-").json
    assert (report["actions"], report["failed"]) == (2, 0)
