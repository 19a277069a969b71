"""A journal as spans: complete, linked, the same when exported twice, and taken by a collector."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from artangram.observe.journalfile import open_journal
from artangram.observe.recording import JOURNAL, recorded
from artangram.observe.spans import SpanMaker
from artangram.testing.fakes import fake_cluster


async def a_state(place: Path) -> Path:
    journal, _ = await open_journal(place / JOURNAL)
    async with (
        fake_cluster(journal=journal) as cluster,
        cluster.trajectory(job="red", task="swe", id="one") as t,
    ):
        await t.run(["true"], kind="tests")
        await t.run(["false"], kind="build")
    await journal.close()
    return place


async def test_a_trajectory_is_a_trace_and_its_actions_are_spans_in_it(tmp_path: Path) -> None:
    state = await a_state(tmp_path)
    spans = list(SpanMaker().spans(recorded(state)))
    by_name = {span.name: span for span in spans}
    root, tests = by_name["invoke_agent swe"], by_name["execute_tool tests"]
    assert root.parent_id is None
    assert {span.parent_id for span in spans if span is not root} == {root.span_id}
    assert len({span.trace_id for span in spans}) == 1
    assert root.begin <= tests.begin <= tests.end <= root.end
    assert [name for name, _ in tests.moments] == ["started", "program began"]
    assert tests.attributes["gen_ai.tool.name"] == "tests"
    assert tests.fault == ""
    assert by_name["execute_tool build"].fault
    assert spans == list(SpanMaker().spans(recorded(state)))


class _Collector(BaseHTTPRequestHandler):
    taken: list[ExportTraceServiceRequest]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        type(self).taken.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[tuple[type[_Collector], str]]:
    kind = type("Collector", (_Collector,), {"taken": []})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kind, f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()


async def test_a_collector_takes_them(run, collector, tmp_path: Path) -> None:
    kind, url = collector
    state = await a_state(tmp_path)
    told = run("trace", "otlp", state, "--endpoint", url)
    assert told.code == 0, told.err
    assert "spans sent" in told.out
    (request,) = kind.taken
    (scope,) = request.resource_spans[0].scope_spans
    assert {"invoke_agent swe", "execute_tool tests"} <= {span.name for span in scope.spans}
    kind.status = 400
    refused = run("trace", "otlp", state, "--endpoint", url)
    assert refused.code == 2
    assert "collector does not take" in refused.err
