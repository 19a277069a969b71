"""The numbers of a run arrive where they were asked for, in the real trackers, offline."""

import sqlite3
import subprocess
import sys

import pytest

from artangram.core.errors import BadInput
from artangram.pipeline.settings import RunSettings
from artangram.pipeline.sinks import sinks

TOLD = """
import sys
from pathlib import Path
from artangram.pipeline.sinks import sinks
(sink, *_) = sinks(Path(sys.argv[2]), run="a run", trackers=[sys.argv[1]])
for step in (1, 2, 3):
    sink.add({"reward": step / 4}, step=step)
sink.close()
"""


def told(tracker, place, monkeypatch):
    """Three steps, told to a tracker in a process of its own: they hook into everything."""
    pytest.importorskip(tracker, reason="it is optional")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(place))
    subprocess.run(
        [sys.executable, "-c", TOLD, tracker, str(place)], check=True, timeout=120, cwd=place
    )


def test_trackio_has_every_step(tmp_path, monkeypatch):
    told("trackio", tmp_path, monkeypatch)
    with sqlite3.connect(tmp_path / "artangram.db") as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
    database.close()
    assert [step for step, _ in rows] == [1, 2, 3]
    assert "0.75" in str(rows[-1][1])


def test_wandb_has_every_step(tmp_path, monkeypatch):
    told("wandb", tmp_path, monkeypatch)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert file.read_bytes().count(b"reward") >= 3


def test_a_tracker_that_is_missing_is_named(tmp_path):
    with pytest.raises(BadInput, match="pip install no_such_tracker"):
        sinks(tmp_path, run="r", trackers=["no_such_tracker"])


def test_a_tracker_that_is_unknown_is_refused():
    with pytest.raises(BadInput, match="report_to"):
        RunSettings(report_to=("notebook",))
