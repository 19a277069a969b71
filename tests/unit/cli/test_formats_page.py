"""What docs/formats.md says is what the program reads and writes."""

import re
from pathlib import Path

import pytest
from msgspec import Struct, structs

from artangram.config.live import LiveSpec
from artangram.core.scheduling.cluster import (
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.traceline import TraceAction, TraceTrajectory, TraceTurn
from artangram.orchestrator.callbackends import ClusterOptions
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
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize(
    ("head", "record"),
    [
        ("`kind: cpu`", CpuSpec),
        ("`kind: gpu`", GpuSpec),
        ("`kind: quota`", QuotaSpec),
        ("`kind: functions`", FunctionsSpec),
        ("service", ServiceSpec),
        ("trajectory", TraceTrajectory),
    ],
)
def test_every_field_is_documented_with_its_default(head: str, record: type[Struct]):
    assert table(head) == {field.name: default_of(field) for field in structs.fields(record)}


def test_every_field_of_turns_actions_and_reports_is_documented():
    assert set(table("turn")) == set(TraceTurn.__struct_fields__)
    flat = {"elastic", "speedup", "service"}  # parts of `needs` in the record
    assert set(table("action")) == set(TraceAction.__struct_fields__) | flat
    assert set(SimReport.__struct_fields__) <= set(table("field"))


def test_every_key_of_a_cluster_is_documented():
    parts = {"options", "takes_objects"}  # A part of its own, and what no file says.
    known = set(LiveSpec.__struct_fields__) | set(ClusterOptions.__struct_fields__)
    assert set(table("key")) == known - parts


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
