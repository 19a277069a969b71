"""The pytest plugin: collection, output and exit code stay pytest's, only the loop is another.

- Runs in the process that collects. Reports of the workers are given to pytest's hooks here, so
  `-x`, `--maxfail`, `-q`, `-v`, `--junitxml`, `--lf` and `--durations` mean what they always mean.
- Steps aside, for pytest's own loop, when no test is to run, when a debugger is attached,
  and when threads run that a fork would not copy.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

from . import cores
from .controller import Options, SuiteController
from .results import Results
from .work import SuiteDurations, SuiteQueue, Trait, chunked
from .workergroup import WorkerGroup

CACHE_KEY = "artangram/durations"
MAX_REMEMBERED = 20_000
ORDERED_MARKS = ("dependency", "incremental", "order")
"""Of plugins by which tests depend on others of their file."""
SHARED_SCOPES = ("class", "module", "package")
TEMPORARY = frozenset({"tmp_path", "tmp_path_factory", "tmpdir", "tmpdir_factory"})


class Elastic:
    """Runs the collected tests on as many workers as there are cores at any moment."""

    def __init__(self, options: Options, *, keep_files: bool = False) -> None:
        self._options = options
        self._keep_files = keep_files
        self._began_at = time.monotonic()
        self._notes: list[str] = []
        self._wish: dict[str, Any] | None = None
        self.results = Results()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        # A project may ask for pytest-xdist in its settings: its loop would run instead of ours.
        if getattr(config.option, "dist", "no") != "no":
            config.option.dist = "no"
            config.option.tx = []
            config.option.numprocesses = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if not session.items or not self._can_fork(session):
            return None
        beliefs = self._beliefs(session)
        traits = [trait_of(item, keep_file=self._keep_files) for item in session.items]
        work = SuiteQueue(chunked(traits, beliefs, workers=self._options.workers), beliefs)
        if any(TEMPORARY.intersection(getattr(i, "fixturenames", ())) for i in session.items):
            # One place for the run, made before the workers put theirs below it.
            session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        audience = _Audience(self, session, beliefs)
        controller = SuiteController(
            WorkerGroup(session),
            work,
            audience=audience,
            cores=cores.usable,
            options=self._options,
        )
        controller.run()
        self._raise_wish()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _can_fork(self, session: pytest.Session) -> bool:
        option = session.config.option
        if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
            return False
        if option.usepdb or getattr(option, "trace", False):
            return False
        if threading.active_count() > 1:
            names = ", ".join(t.name for t in threading.enumerate()[1:])
            self._notes.append(f"one process only: collecting started threads ({names})")
            return False
        return True

    def _beliefs(self, session: pytest.Session) -> SuiteDurations:
        known: dict[str, float] = {}
        if session.config.pluginmanager.hasplugin("cacheprovider"):
            cache: Any = session.config.cache
            known = cache.get(CACHE_KEY, {})
        files = [item.nodeid.split("::")[0] for item in session.items]
        found = {n: known[i.nodeid] for n, i in enumerate(session.items) if i.nodeid in known}
        return SuiteDurations(files, found)

    def _raise_wish(self) -> None:
        wish = self._wish
        if wish is None:
            return
        if wish.get("interrupt"):
            raise KeyboardInterrupt(wish["reason"])
        if wish.get("exit"):
            pytest.exit(wish["reason"], returncode=wish["code"])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results.add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.results.add_collection_error(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for note in self._notes:
            terminalreporter.write_line(f"elastic: {note}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        durations = self.results.durations()
        if not durations or not config.pluginmanager.hasplugin("cacheprovider"):
            return
        cache: Any = config.cache
        merged = {**cache.get(CACHE_KEY, {}), **durations}
        newest = list(merged.items())[-MAX_REMEMBERED:]
        with warnings.catch_warnings():
            # A place that cannot be written to only costs the order of the next run.
            warnings.simplefilter("ignore")
            cache.set(CACHE_KEY, dict(newest))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def wish(self, wish: dict[str, Any]) -> None:
        self._wish = self._wish or wish

    def width(self, width: int) -> None:
        self.results.widths.append((time.monotonic() - self._began_at, width))


class _Audience:
    """Gives what workers report to pytest, as if it had happened in this process."""

    def __init__(self, plugin: Elastic, session: pytest.Session, beliefs: SuiteDurations) -> None:
        self._plugin = plugin
        self._session = session
        self._config = session.config
        self._beliefs = beliefs
        self._stops = False

    @property
    def wants_to_stop(self) -> bool:
        return self._stops or bool(self._session.shouldfail or self._session.shouldstop)

    def on_reports(self, test: int, reports: list[dict[str, Any]], *, is_over: bool) -> None:
        hook = self._config.hook
        seconds = 0.0
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self._config, data=tupled(data))
            seconds += getattr(report, "duration", 0.0)
            hook.pytest_runtest_logreport(report=report)
        if is_over:
            self._beliefs.learn(test, seconds)
            self._end(test)

    def on_crash(self, test: int, why: str, *, duration_s: float) -> None:
        item = self._session.items[test]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=why,
            when="call",
            duration=duration_s,
        )
        self._config.hook.pytest_runtest_logreport(report=report)
        self._end(test)

    def on_warning(self, seen: dict[str, Any]) -> None:
        told = seen["warning"]
        category = type(told["category"], (Warning,), {})
        message = warnings.WarningMessage(
            category(told["message"]), category, told["filename"], told["lineno"]
        )
        location = seen["location"]
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={
                "warning_message": message,
                "when": seen["when"],
                "nodeid": seen["nodeid"],
                "location": None if location is None else tuple(location),
            }
        )

    def on_stop(self, wish: dict[str, Any]) -> None:
        self._stops = True
        self._plugin.wish(wish)
        if wish.get("fail"):
            self._session.shouldfail = wish["reason"]
        elif not wish.get("exit") and not wish.get("interrupt"):
            self._session.shouldstop = wish["reason"]

    def on_note(self, text: str) -> None:
        self._plugin.note(text)

    def on_width(self, width: int) -> None:
        self._plugin.width(width)

    def _end(self, test: int) -> None:
        item = self._session.items[test]
        self._config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def tupled(data: dict[str, Any]) -> dict[str, Any]:
    """A report's data as it was before JSON made its tuples lists."""
    for name in ("location", "longrepr"):
        if isinstance(data.get(name), list):
            data[name] = tuple(data[name])
    for name in ("sections", "user_properties"):
        data[name] = [tuple(pair) for pair in data.get(name, ())]
    return data


def trait_of(item: pytest.Item, *, keep_file: bool) -> Trait:
    """The file of a test, and what it shares with which neighbours."""
    file = item.nodeid.split("::")[0]
    return Trait(file, tuple(_shares(item, file, keep_file)))


def _shares(item: pytest.Item, file: str, keep_file: bool) -> Iterator[Hashable]:
    known = getattr(item, "_fixtureinfo", None)
    if keep_file or known is None or any(item.get_closest_marker(m) for m in ORDERED_MARKS):
        yield "file", file
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        yield "mark", str(group.args[0] if group.args else group.kwargs.get("name"))
    if known is None:
        return
    fixtures = (f for found in known.name2fixturedefs.values() for f in found)
    scopes = {fixture.scope for fixture in fixtures}
    kinds: dict[str, type[pytest.Collector]] = {
        "class": pytest.Class,
        "module": pytest.Module,
        "package": pytest.Package,
    }
    for scope in SHARED_SCOPES:
        if scope in scopes:
            node = item.getparent(kinds[scope])
            yield scope, node.nodeid if node is not None else file
