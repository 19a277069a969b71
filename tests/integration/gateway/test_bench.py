"""`bench gateway` and `bench engine` measure what they say: real servers, every answer checked."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from artangram.cli.verbs import app
from artangram_bench import engine as engine_bench
from artangram_bench import gateway as bench
from artangram_bench.gateway import Cell


def a_cell(name: str, *, per_s: float, p50_ms: float, p95_ms: float) -> Cell:
    return Cell(name=name, concurrency=64, per_s=[per_s], p50_ms=p50_ms, p95_ms=p95_ms, failed=0)


def test_ratios_compare_what_each_adds_to_the_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "CONCURRENCIES", (64,))
    cells = [
        a_cell("engine", per_s=1000, p50_ms=1, p95_ms=2),
        a_cell("gateway", per_s=800, p50_ms=2, p95_ms=4),
        a_cell("LiteLLM", per_s=100, p50_ms=11, p95_ms=12),
    ]
    (ratio,) = bench._ratios(cells)
    assert (ratio.throughput, ratio.share_of_added_p50, ratio.share_of_added_p95) == (8, 0.1, 0.2)


async def test_a_small_crowd_and_a_short_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "SLOW_TOKEN_S", 0.001)
    monkeypatch.setattr(bench, "CONCURRENCIES", (1, 4))
    figures = await bench._figures(1, 0.1, sessions=3, peer="no-such-program")
    assert "no-such-program" in figures.missing
    assert figures.ratios == []
    assert {cell.name for cell in figures.cells} == {"engine", "gateway"}
    assert all(cell.failed == 0 and cell.per_s[0] > 0 for cell in figures.cells)
    assert (figures.crowd.failed, figures.crowd.forked) == (0, 0)
    assert (figures.burst.requests, figures.burst.failed) == (200, 0)
    assert msgspec.json.encode(figures)


def test_the_engine_is_measured_and_scored_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(engine_bench, "SIZES", {"small": engine_bench.SIZES["small"]})
    monkeypatch.setattr(engine_bench, "CONCURRENCIES", (2,))
    out = tmp_path / "engine.json"
    done = CliRunner().invoke(
        app("bench"), ["bench", "engine", "--rounds", "1", "--json", str(out)]
    )
    assert done.exit_code == 0, done.output
    result = msgspec.json.decode(out.read_bytes())
    assert {cell["where"] for cell in result["figures"]} == {"process", "thread"}
    for cell in result["figures"]:
        assert cell["worst_ratio"] == pytest.approx(1.0, abs=1e-3)
        assert min(*cell["tokens_per_s"], *cell["update_ms"]) > 0
