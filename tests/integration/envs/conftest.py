"""A small pytest suite in a directory of its own, and ways to run it in real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from busy_machine import PATIENCE_S

from artangram.envs.elastictest import command


class Run(NamedTuple):
    """How a run of a suite ended."""

    code: int
    out: str
    err: str
    report: dict[str, Any]

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]

    def outcomes(self) -> dict[str, str]:
        return {test["id"]: test["outcome"] for test in self.report["tests"]}

    def text_of(self, test_id: str) -> str:
        return next(t for t in self.report["tests"] if t["id"] == test_id)["text"]


class Suite:
    """Test files in a directory, and a log that the tests can write to."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.report = home / "report.json"
        self.log = home / "log"
        self._started: list[subprocess.Popen[str]] = []

    def environ(self, units: int | None = 2) -> dict[str, str]:
        told = {} if units is None else {"ARTANGRAM_UNITS": str(units)}
        # Plugins of the developer's machine are not part of the suite, and slow to import.
        quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "LOG": str(self.log)}
        return {**os.environ, **quiet, **told}

    def start(self, *args: str, units: int | None = 2) -> subprocess.Popen[str]:
        """Begin a run, on any number of cores."""
        argv = command([f"--report={self.report}", *args], python=sys.executable)
        process = subprocess.Popen(
            argv,
            cwd=self.home,
            env=self.environ(units),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs us in the background has us ignore it, and our children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        self._started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[str]") -> Run:
        out, err = process.communicate(timeout=PATIENCE_S)
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        return Run(process.returncode, out, err, report)

    def run(self, *args: str, units: int | None = 2) -> Run:
        return self.finish(self.start(*args, units=units))

    def plain(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """The same with pytest itself."""
        return subprocess.run(
            [sys.executable, "-m", "pytest", *args],
            cwd=self.home,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="session", autouse=True)
def no_idle_loop() -> None:
    """Tests without a loop stay without: looptime would ask for one, and nobody would close it."""
    asyncio.set_event_loop(None)


NewSuite = Callable[..., Suite]


@pytest.fixture
def new_suite(tmp_path: Path) -> Iterator[NewSuite]:
    """Make a suite of files: `new_suite(**{"test_a": code})`."""
    made: list[Suite] = []

    def make(**files: str) -> Suite:
        suite = Suite(tmp_path / f"suite{len(made)}")
        suite.home.mkdir()
        (suite.home / "pytest.ini").write_text("[pytest]\n")
        for name, code in files.items():
            (suite.home / f"{name}.py").write_text(HEAD + code)
        made.append(suite)
        return suite

    yield make
    for suite in made:
        suite.close()


HEAD = """
import os, time, signal, sys, pytest
def log(*words):
    with open(os.environ["LOG"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")
"""
