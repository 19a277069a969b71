"""Cores taken and given back in the middle of a run, as a sandbox does it."""

import json
import os
import subprocess
import sys
import time

import pytest
from busy_machine import PATIENCE_S, at_best

from artangram.envs.elastictest import command, one_file
from artangram.sandbox.namespace.cores import AffinityCores

CORES = tuple(sorted(os.sched_getaffinity(0)))
TEST_S = 0.06
LATE_S = 0.6
"""A portion and a look at the cores."""
CODE = f"""
@pytest.mark.parametrize("n", range(70))
def test_a(n):
    log("begin", n, time.monotonic()); time.sleep({TEST_S}); log("end", n, time.monotonic())
"""

needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be divided")


def overlaps(lines: list[str], begin: float, end: float) -> set[int]:
    """How many tests ran at once, when one began in an interval."""
    events = sorted((float(at), what) for what, _, at in map(str.split, lines))
    running, counts = 0, set()
    for at, what in events:
        running += 1 if what == "begin" else -1
        if begin <= at <= end and what == "begin":
            counts.add(running)
    return counts


def wait_for_lines(suite, number: int) -> float:
    deadline = time.monotonic() + PATIENCE_S
    while len(suite.logged()) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return time.monotonic()


@needs_two_cores
async def test_workers_follow_the_cores_down_and_up_again(new_suite):
    async def num_wrong() -> int:
        return wrongly_followed(new_suite(test_a=CODE))

    await at_best(num_wrong, below=1, tries=4)


def wrongly_followed(suite) -> int:
    """In how many of three phases the workers were not as many as the cores."""
    process = suite.start("-p", "no:cacheprovider")
    hold = AffinityCores().lend(None, process.pid, cores=CORES[:2])
    shrunk_at = wait_for_lines(suite, 20)
    hold.resize(CORES[:1])
    grown_at = wait_for_lines(suite, len(suite.logged()) + 40)
    hold.resize(CORES[:2])
    run = suite.finish(process)
    assert run.code == 0
    lines = suite.logged()
    assert [width["workers"] for width in run.report["widths"]] == [2, 1, 2]
    assert run.report["summary"]["passed"] == 70
    wide = overlaps(lines, 0, shrunk_at)
    narrow = overlaps(lines, shrunk_at + LATE_S, grown_at)
    wide_again = overlaps(lines, grown_at + LATE_S, float("inf"))
    return (2 not in wide) + (narrow != {1}) + (2 not in wide_again)


@needs_two_cores
def test_one_unit_is_one_worker_on_however_many_cores(new_suite):
    suite = new_suite(test_a=CODE.replace("range(70)", "range(8)"))
    assert suite.run(units=1).code == 0
    assert overlaps(suite.logged(), 0, float("inf")) == {1}


WAIT = """
def wait(word):
    while word not in open(os.environ["LOG"]).read(): time.sleep(0.01)
"""
THREE_CORES = """
import sys
from artangram.envs.elastictest import cores
from artangram.envs.elastictest.main import main
cores.usable = lambda: 3
sys.exit(main())
"""


def test_a_worker_whose_next_test_was_taken_goes_on_with_one_of_another_file(new_suite):
    # The third worker takes test_then of a; the first, left without, takes test_then of b.
    pair = "def test_first(): log('{0}1', os.getpid()); {1}\n"
    pair += "def test_then(): log('{0}2', os.getpid()); {2}\n"
    suite = new_suite(
        test_a=WAIT + pair.format("a", "wait('a2')", "wait('b2')"),
        test_b=WAIT + pair.format("b", "wait('b2')", "pass"),
        test_c="@pytest.mark.parametrize('n', range(46))\ndef test_c(n): pass",
    )
    ran = subprocess.run(
        [sys.executable, "-c", THREE_CORES, "-q", "-p", "no:cacheprovider"],
        cwd=suite.home,
        env=suite.environ(units=3),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    worker_of = dict(line.split() for line in suite.logged())
    assert worker_of["a1"] == worker_of["b2"] != worker_of["a2"]
    assert ran.returncode == 0, ran.stdout


def test_one_file_runs_where_this_package_is_not(new_suite):
    suite = new_suite(test_a="import helper\ndef test_a(): assert helper.x == 1", helper="x = 1")
    (suite.home / "elastic.pyz").write_bytes(one_file())
    blocked = "import sys; sys.modules['artangram'] = None\n"
    (suite.home / "sitecustomize.py").write_text(blocked)
    ran = subprocess.run(
        command(["-q", "--report=r.json"], python=sys.executable, program="elastic.pyz"),
        cwd=suite.home,
        env={**suite.environ(), "PYTHONPATH": str(suite.home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads((suite.home / "r.json").read_text())["summary"]["passed"] == 1


def test_a_python_without_pytest_is_told_what_it_lacks(new_suite):
    suite = new_suite(test_a="def test_a(): pass")
    (suite.home / "elastic.pyz").write_bytes(one_file())
    argv = [sys.executable, "-S", "elastic.pyz"]
    ran = subprocess.run(argv, cwd=suite.home, capture_output=True, text=True, check=False)
    assert ran.returncode == 3
    assert "No module named 'pytest'" in ran.stderr
    assert f"{sys.executable} needs pytest where it runs" in ran.stderr
