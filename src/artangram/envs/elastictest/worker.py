"""A worker: a fork of the process that collected the suite, running the tests it is told to.

- Collection and imports are paid once, before the fork. What a session fixture makes, every
  worker makes for itself; what an import or a conftest made is a copy.
- A portion is run as pytest runs it, with all its hooks; the reports go to the controller, test by
  test. Nothing is printed here.
- Between portions it sleeps. Without a controller it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import pytest

from .channel import DONE, ENDED, FAILED, FINISH, LATE, READY, STOPPED, WARNED, WorkerChannel

UNCAUGHT = {
    "unraisableexception": "collect_unraisable",
    "threadexception": "collect_thread_exception",
}
"""Plugins of pytest from 8.4 that raise what cannot be caught, also when all tests are over."""


def serve(session: pytest.Session, channel: WorkerChannel, *, number: int, crash: int) -> NoReturn:
    """Be worker `number` to the end. Should it crash, Python's last words go to `crash`."""
    code = 1
    channel.belong_to(os.getpid())
    try:
        _become(session.config, number)
        faulthandler.enable(crash)
        SuiteWorker(session, channel).run()
        # Only what was registered since the fork: the rest belongs to the process it is a copy of.
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001 - the frames above belong to another process
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(config: pytest.Config, number: int) -> None:
    """Shed what must not be shared with the process this is a copy of."""
    atexit._clear()
    # Collecting garbage would touch, and so copy, every page of what was collected before.
    gc.freeze()
    os.environ["ARTANGRAM_WORKER"] = str(number)
    # Suites that keep their databases and ports apart already do it by this name.
    os.environ["PYTEST_XDIST_WORKER"] = f"gw{number}"
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        # Its temporary files have one position for all copies of this process.
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.unregister(reporter)
        config.pluginmanager.register(SilentReporter(reporter), "terminalreporter")
    _own_temporary_files(config, number)


def _own_temporary_files(config: pytest.Config, number: int) -> None:
    """`tmp_path` of this worker is below that of the whole run, if that exists."""
    factory: Any = getattr(config, "_tmp_path_factory", None)
    if getattr(factory, "_basetemp", None) is not None:
        own = factory._basetemp / f"worker-{number}"
        own.mkdir(mode=0o700)
        factory._basetemp = own


class SilentReporter:
    """Stands in for pytest's reporter, which others ask for: knows the same, prints no result."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reporter, name)


class Recorder:
    """A plugin that keeps what pytest reports instead of printing it."""

    def __init__(self, config: pytest.Config, channel: WorkerChannel) -> None:
        self._config = config
        self._channel = channel
        self._reports: list[dict[str, Any]] = []
        self._failed = False
        # Registering a plugin replays the warnings of collection to it.
        self.is_on = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed
        hook = self._config.hook.pytest_report_to_serializable
        self._reports.append(hook(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if self.is_on:
            warning = {
                "message": str(warning_message.message),
                "category": warning_message.category.__name__,
                "filename": warning_message.filename,
                "lineno": warning_message.lineno,
            }
            seen = {"warning": warning, "when": when, "nodeid": nodeid, "location": location}
            self._channel.send(WARNED, 0, seen)

    def flush(self, test: int) -> None:
        """Everything about `test` is known: tell it."""
        self._channel.send(FAILED if self._failed else ENDED, test, self._reports)
        self._reports = []
        self._failed = False


class SuiteWorker:
    """Runs portions until it is told to finish."""

    def __init__(self, session: pytest.Session, channel: WorkerChannel) -> None:
        self._session = session
        self._channel = channel
        self._recorder = Recorder(session.config, channel)
        session.config.pluginmanager.register(self._recorder, "artangram-recorder")
        self._recorder.is_on = True
        self._last: tuple[int, pytest.Item] | None = None
        self._prepared_for: pytest.Item | pytest.Session = session
        self._stops = False

    def run(self) -> None:
        self._channel.send(READY)
        while True:
            frame = self._channel.receive()
            if frame is None:
                os._exit(1)
            if frame.kind == FINISH:
                self._went_well(partial(self._tear_down, None))
                self._channel.send(DONE)
                return
            if not self._stops:
                portion = frame.value()
                self._run_portion(portion["tests"], portion["then"])

    def _run_portion(self, tests: list[int], then: int | None) -> None:
        followers = [*tests[1:], then]
        for test, follower in zip(tests, followers):  # noqa: B905 - `strict` is of Python 3.10
            item = self._session.items[test]
            # The session stands for "another test, not yet known": its own fixtures stay.
            follow = self._session if follower is None else self._session.items[follower]
            goes_on = self._went_well(partial(self._run_test, test, item, follow))
            self._recorder.flush(test)
            if not goes_on:
                return

    def _run_test(self, test: int, item: pytest.Item, follow: pytest.Item | pytest.Session) -> None:
        if self._prepared_for is not item:
            self._tear_down(item)
        self._last = (test, item)
        self._prepared_for = follow
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=follow)

    def _tear_down(self, follow: pytest.Item | None) -> None:
        """End the fixtures that the tests so far share and that `follow` does not."""
        if self._last is None:
            return
        test, item = self._last
        with self._captured():
            call = pytest.CallInfo.from_call(
                partial(self._drop, follow),
                when="teardown",
                reraise=(pytest.exit.Exception, KeyboardInterrupt),
            )
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        if report.failed:
            hook = item.config.hook.pytest_report_to_serializable
            self._channel.send(LATE, test, [hook(config=item.config, report=report)])

    def _drop(self, follow: pytest.Item | None) -> None:
        setup_state: Any = self._session._setupstate
        setup_state.teardown_exact(follow)
        if follow is None:
            gc.collect()
        for name, collect in UNCAUGHT.items():
            plugin = self._session.config.pluginmanager.getplugin(name)
            if hasattr(plugin, collect):
                getattr(plugin, collect)(self._session.config)

    @contextlib.contextmanager
    def _captured(self) -> Iterator[None]:
        capture = self._session.config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            yield
            return
        capture.resume_global_capture()
        try:
            yield
        finally:
            capture.suspend_global_capture()
            capture.read_global_capture()

    def _went_well(self, act: Callable[[], None]) -> bool:
        """Whether the run goes on. Passes on what ends a whole run of pytest, not just a test."""
        try:
            act()
        except pytest.exit.Exception as wish:
            self._stop(reason=str(wish.msg), exit=True, code=wish.returncode)
        except KeyboardInterrupt:
            self._stop(reason="KeyboardInterrupt", interrupt=True)
        else:
            session = self._session
            if not session.shouldfail and not session.shouldstop:
                return True
            reason = str(session.shouldfail or session.shouldstop)
            self._stop(reason=reason, fail=bool(session.shouldfail))
        return False

    def _stop(self, **wish: Any) -> None:
        self._stops = True
        self._channel.send(STOPPED, 0, wish)
