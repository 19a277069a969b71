"""A journal opens as a trace: slices on one thread never overlap, and all of them are there."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from live_run import ANY_S, MIXED, LiveRun, a_mixed_cluster, on_virtual_time, traces

from artangram.core.scheduling.decisions import Start
from artangram.observe.journalfile import open_journal
from artangram.observe.perfetto import trace_events
from artangram.observe.trace import Trace
from artangram.orchestrator.recovery import Setup
from artangram.testing.fakes import fake_cluster


@settings(max_examples=10, deadline=None)
@given(trace=traces(MIXED, seconds=ANY_S))
def test_slices_of_one_thread_do_not_overlap(trace: Trace) -> None:
    live = LiveRun(trace, Setup(cluster=a_mixed_cluster(), policy="elastic"), "exact")
    on_virtual_time(live.run())
    events = list(trace_events(live.journal.entries))
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            rows.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in pairwise(spans))
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert set(rows) <= named
    started = {
        decision.lease.action_id
        for entry in live.journal.entries
        for decision in entry.decisions
        if isinstance(decision, Start)
        and not all(one.resource == "functions" for one in decision.lease.allocations)
    }
    assert {event["args"]["action"] for event in events if event["ph"] == "X"} == started


async def test_a_state_directory_becomes_a_file(run, tmp_path: Path) -> None:
    journal, past = await open_journal(tmp_path / "journal.sqlite")
    async with (
        fake_cluster(journal=journal, past=past) as client,
        client.trajectory(job="red") as t,
    ):
        for _ in range(3):
            await t.run(["true"], kind="tests")
    await journal.close()
    told = run("trace", "perfetto", tmp_path, tmp_path / "run.json.gz")
    assert told.code == 0, told.err
    found = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    slices = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert [(one["name"], one["args"]["job"]) for one in slices] == [("tests", "red")] * 3
    missing = run("trace", "perfetto", tmp_path / "nowhere", tmp_path / "x.json")
    assert missing.code == 2
