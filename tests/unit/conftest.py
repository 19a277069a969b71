"""The command line in this process: what a user types, and what they get back."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from artangram.cli import main

TRACE = """\
{"artangram_trace": 1, "name": "small", "train_s": 5}
{"trajectory": "a", "memory_mb": 100, "turns": [{"think_s": 1, "actions": [\
{"kind": "tool", "needs": {"cpu": 1}, "work_s": 2}, \
{"kind": "test", "needs": {"cpu": {"min": 1, "max": 4}}, "elastic": "cpu", "work_s": 8, \
"speedup": {"power": 1.0}, "reward": true}]}]}
{"trajectory": "b", "memory_mb": 100, "turns": [{"actions": [\
{"kind": "tool", "needs": {"cpu": 1}, "work_s": 3}]}]}
"""

CLUSTER = """\
pools:
  cpu: {kind: cpu, nodes: 1, cores: 4, memory_gb: 1}
"""


class Said(NamedTuple):
    """What a verb left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("simulate", ...)`: the code, standard output and standard error of a verb."""

    def run_verb(*argv: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["artangram", *map(str, argv)])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Said(code, *capfd.readouterr())

    return run_verb


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl"
    path.write_text(TRACE, encoding="utf-8")
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(CLUSTER, encoding="utf-8")
    return path
