"""What became of each test, for the last line and for `--report`.

A test counts once: failed if any part of it failed, set-up and tear-down included; else skipped if
it was skipped or failed as expected; else passed if it came to its end, or unfinished.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

MAX_TEXT = 20_000
"""Longer output of a failure is cut in the middle in the report file."""


class Results:
    """Gathers reports; order does not matter."""

    def __init__(self) -> None:
        self._tests: dict[str, dict[str, Any]] = {}
        self._collection: list[dict[str, str]] = []
        self.widths: list[tuple[float, int]] = []
        """How many workers could be busy, and from when on."""

    def add(self, report: pytest.TestReport) -> None:
        test = self._tests.setdefault(
            report.nodeid, {"id": report.nodeid, "outcome": "unfinished", "duration_s": 0.0}
        )
        test["duration_s"] += report.duration
        if report.failed:
            test["outcome"] = "failed"
            text = f"{test.get('text', '')}[{report.when}]\n{report.longreprtext}\n"
            for name, content in report.sections:
                text += f"--- {name} ---\n{content}\n"
            test["text"] = cut(text)
        elif report.skipped and test["outcome"] != "failed":
            test["outcome"] = "skipped"
        elif report.passed and report.when == "call" and test["outcome"] == "unfinished":
            test["outcome"] = "passed"

    def add_collection_error(self, report: pytest.CollectReport) -> None:
        self._collection.append({"id": report.nodeid, "text": cut(report.longreprtext)})

    def durations(self) -> dict[str, float]:
        return {name: round(test["duration_s"], 4) for name, test in self._tests.items()}

    def count(self, outcome: str) -> int:
        return sum(test["outcome"] == outcome for test in self._tests.values())

    def line(self, seconds: float) -> str:
        """One line that says it all."""
        counts = [f"{self.count(o)} {o}" for o in ("passed", "failed", "skipped")]
        if self._collection:
            counts.append(f"{len(self._collection)} not collected")
        return f"{', '.join(counts)} in {seconds:.2f} s"

    def write(self, path: str, *, exit_code: int, seconds: float) -> None:
        """The whole report as JSON; a reader never sees half of it."""
        value = {
            "exit_code": exit_code,
            "duration_s": round(seconds, 4),
            "summary": {o: self.count(o) for o in ("passed", "failed", "skipped")},
            "not_collected": self._collection,
            "widths": [{"at_s": round(at, 4), "workers": width} for at, width in self.widths],
            "tests": list(self._tests.values()),
        }
        draft = f"{path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
        os.replace(draft, path)


def cut(text: str) -> str:
    """`text` without its middle if it is too long."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
