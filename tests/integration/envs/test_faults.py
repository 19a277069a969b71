"""Workers that die, tests that hang, interpreters that end: one test fails, the others do not."""

import os
import signal
import time
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S


def alive_below(pid: int) -> list[int]:
    """Processes whose parent is `pid`, and theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry.name), *alive_below(int(entry.name))]
    return found


def wait_until(holds) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("os._exit(0)", "it exited with code 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL ended it"),
        ("import ctypes; ctypes.string_at(0)", 'test_a.py", line 10 in test_bad'),
    ],
)
def test_a_worker_that_dies_fails_its_test_only(new_suite, deed, said):
    code = f"""
@pytest.fixture(scope="module")
def module(): yield 1
def test_bad(module):
    {deed}
@pytest.mark.parametrize("n", range(6))
def test_good(n, module): log(n)
"""
    suite = new_suite(test_a=code)
    run = suite.run()
    assert run.code == 1
    assert run.report["summary"] == {"passed": 6, "failed": 1, "skipped": 0}
    assert run.outcomes()["test_a.py::test_bad"] == "failed"
    assert said in run.text_of("test_a.py::test_bad")
    assert sorted(suite.logged()) == [str(n) for n in range(6)]


@pytest.mark.parametrize("deed", ["pass", "sys.exit(0)", "pytest.exit('no')", "assert 0"])
def test_a_copy_of_a_worker_that_a_test_forgot_to_end_says_nothing(new_suite, deed):
    code = f"""
def test_a():
    if os.fork() == 0:
        {deed}
    else:
        os.wait()
@pytest.mark.parametrize("n", range(4))
def test_b(n): log(n)
"""
    suite = new_suite(test_a=code)
    run = suite.run()
    assert run.code == 0, run.out
    assert run.report["summary"] == {"passed": 5, "failed": 0, "skipped": 0}
    assert sorted(suite.logged()) == ["0", "1", "2", "3"]


def test_a_worker_killed_from_outside_is_replaced(new_suite):
    code = """
@pytest.mark.parametrize("n", range(8))
def test_a(n): log(n, os.getpid()); time.sleep(0.1)
"""
    suite = new_suite(test_a=code)
    process = suite.start()
    wait_until(lambda: len(suite.logged()) >= 3)
    test, pid = suite.logged()[-1].split()
    os.kill(int(pid), signal.SIGKILL)
    run = suite.finish(process)
    assert run.report["summary"] == {"passed": 7, "failed": 1, "skipped": 0}
    assert run.outcomes()[f"test_a.py::test_a[{test}]"] == "failed"
    assert sorted(line.split()[0] for line in suite.logged()) == [str(n) for n in range(8)]


def test_a_test_that_takes_too_long_fails_and_says_where_it_was(new_suite):
    code = """
def test_stuck():
    time.sleep(600)
def test_stubborn():
    signal.signal(signal.SIGABRT, signal.SIG_IGN); time.sleep(600)
@pytest.mark.parametrize("n", range(3))
def test_a(n): time.sleep(0.05)
"""
    for limit_s in ("0.4", "3", "20"):  # Until the others have time enough on a busy machine.
        run = new_suite(test_a=code).run(f"--test-timeout={limit_s}")
        text = run.text_of("test_a.py::test_stuck")
        assert f"it took longer than {limit_s} s" in text
        if run.report["summary"]["passed"] == 3 and "line 8" in text:
            break
    assert run.report["summary"] == {"passed": 3, "failed": 2, "skipped": 0}
    assert "line 8 in test_stuck" in text


@pytest.mark.parametrize("deed", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_an_interpreter_that_ends_while_collecting_is_no_success(new_suite, deed):
    run = new_suite(test_a=f"{deed}\ndef test_a(): pass").run()
    assert run.code == 3
    assert "cut off before it was over" in run.err


def test_a_test_that_kills_the_controller_is_no_success_and_leaves_nothing(new_suite):
    code = """
def test_a(): log(os.getpid()); os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)
"""
    suite = new_suite(test_a=code)
    assert suite.run(units=1).code == 3
    worker = int(suite.logged()[0])
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_run_is_ended_from_outside(new_suite, signum):
    suite = new_suite(test_a="def test_a(): log(1); time.sleep(60)\ndef test_b(): test_a()")
    process = suite.start()
    wait_until(lambda: len(suite.logged()) == 2)
    below = alive_below(process.pid)
    assert len(below) == 3
    process.send_signal(signum)
    assert suite.finish(process).code != 0
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def test_a_worker_that_dies_in_its_last_tear_down_fails_the_run(new_suite):
    code = """
@pytest.fixture(scope="session")
def bad(): yield; os._exit(0)
def test_a(bad): pass
"""
    run = new_suite(test_a=code).run()
    assert run.code == 1
    assert "tearing down what it shared" in run.text_of("test_a.py::test_a")
