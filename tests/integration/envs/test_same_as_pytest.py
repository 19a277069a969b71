"""The same tests, results and exit codes as plain pytest, on however many workers."""

import random
from collections import Counter
from pathlib import Path

import pytest

FIXTURES = """
@pytest.fixture(scope="module")
def module(): yield os.getpid()
@pytest.fixture(scope="class")
def klass(): yield os.getpid()
@pytest.fixture(params=["p", "q"], scope="module")
def param(request): return request.param
@pytest.fixture
def plain(tmp_path): return tmp_path
"""
BODIES = (
    "log('ran', request.node.nodeid)",
    "log('ran', request.node.nodeid); assert False",
    "log('ran', request.node.nodeid); pytest.skip('no')",
    "log('ran', request.node.nodeid); pytest.xfail('known')",
)


def a_random_file(rng: random.Random) -> str:
    """Functions, classes and parameters with fixtures of every scope."""
    lines = [FIXTURES]
    for number in range(rng.randint(0, 6)):
        pad, first = "", "request"
        if rng.random() < 0.4:
            lines.append(f"class TestC{number}:")
            pad, first = "    ", "self, request"
        for inner in range(rng.randint(1, 3) if pad else 1):
            wanted = rng.sample(["module", "klass", "param", "plain"], rng.randint(0, 2))
            if rng.random() < 0.5:
                lines.append(f"{pad}@pytest.mark.parametrize('n', range({rng.randint(1, 4)}))")
                wanted.append("n")
            lines.append(f"{pad}def test_{number}_{inner}({', '.join([first, *wanted])}):")
            lines.append(f"{pad}    {rng.choice(BODIES)}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(2))
def test_the_tests_that_pytest_collects_are_run_once_each(new_suite, seed):
    rng = random.Random(seed)
    suite = new_suite(**{f"test_{n}": a_random_file(rng) for n in range(3)})
    collected = suite.plain("--collect-only", "-q").stdout.split("\n\n")[0].split()
    run = suite.run("-q", "-p", "no:cacheprovider", units=rng.choice([1, 2, 5]))
    ran = [line.removeprefix("ran ") for line in suite.logged()]
    assert Counter(ran) == Counter(collected)
    assert set(run.outcomes()) == set(collected)
    suite.log.unlink()
    plain = suite.plain("-q")
    assert run.code == plain.returncode
    counts = run.report["summary"]
    said = plain.stdout.splitlines()[-1]
    assert f"{counts['passed']} passed" in said or not counts["passed"]
    assert f"{counts['failed']} failed" in said or not counts["failed"]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("def test_a(): pass\nimport no_such_module", 2),
        ("def test_a(): pytest.exit('enough', returncode=9)", 9),
        ("def test_a(): pytest.exit('enough', returncode=-1)", 255),
        ("def test_a(): pytest.exit('enough', returncode=300)", 44),
        ("def test_a(): raise KeyboardInterrupt", 2),
        ("def helper(): pass", 5),
        ("@pytest.fixture\ndef f(): raise ValueError\ndef test_a(f): pass", 1),
    ],
)
def test_exit_codes_are_those_of_pytest(new_suite, code, exit_code):
    suite = new_suite(test_a=code)
    assert suite.run().code == exit_code


@pytest.mark.parametrize(
    "code",
    [
        # In a cycle, so that only the last collection of garbage finds it.
        "def test_a():\n    a = type('A', (), {})(); a.file = open(__file__); a.self = a",
        "a = type('A', (), {})(); a.file = open(__file__); a.self = a; del a\ndef test_a(): pass",
        """
@pytest.fixture(scope="session")
def bad():
    yield
    from threading import Thread
    thread = Thread(target=lambda: 1 / 0); thread.start(); thread.join()
def test_a(bad): pass""",
    ],
)
def test_what_pytest_raises_only_at_its_end_fails_here_too(new_suite, code):
    suite = new_suite(test_a=f"import gc; gc.disable()\n{code}")
    assert suite.plain("-W", "error").returncode == 1
    run = suite.run("-W", "error")
    assert run.code == run.report["exit_code"] == 1


@pytest.mark.parametrize(("wish", "exit_code"), [("shouldfail", 1), ("shouldstop", 2)])
def test_a_test_that_ends_the_session_ends_it_here_too(new_suite, wish, exit_code):
    suite = new_suite(test_a=f"def test_a(request): request.session.{wish} = 'enough'")
    assert suite.plain().returncode == exit_code
    run = suite.run()
    assert run.code == exit_code
    assert "enough" in run.out


@pytest.mark.parametrize("deed", ["pytest.exit('enough')", "raise KeyboardInterrupt"])
def test_a_test_that_never_ended_has_not_passed(new_suite, deed):
    run = new_suite(test_a=f"def test_a(): {deed}").run()
    assert run.outcomes() == {"test_a.py::test_a": "unfinished"}
    assert run.last_line.startswith("0 passed, 0 failed, 0 skipped")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--units=0", "argument --units: '0' is no number above 0"),
        ("--units=many", "argument --units: 'many' is no number above 0"),
        ("--test-timeout=-1", "argument --test-timeout: '-1' is no number of seconds above 0"),
        ("--test-timeout=s", "argument --test-timeout: 's' is no number of seconds above 0"),
        ("--keep=all", "argument --keep: invalid choice: 'all'"),
        ("--report=/dev/null/x", "argument --report: '/dev/null/x' is no file"),
        ("--report=/tmp", "argument --report: '/tmp' is no file that can be written here"),
    ],
)
def test_an_option_that_makes_no_sense_is_wrong_use_before_anything_runs(new_suite, option, said):
    suite = new_suite(test_a="def test_a(): log(1)")
    run = suite.run(option)
    assert (run.code, run.out, suite.logged()) == (4, "", [])
    assert run.err.startswith(f"error: {said}")
    assert len(run.err.splitlines()) == 1


def test_output_is_that_of_pytest_with_a_summary_behind_it(new_suite):
    suite = new_suite(
        test_a="""
def test_good(request): assert request.config.get_terminal_writer()
def test_bad():
    print("words of a test"); assert [1, 2] == [1, 3]
def test_not(): pytest.skip("why not")
def test_warns():
    import warnings; warnings.warn("careful")
"""
    )
    run = suite.run("-rs")
    assert run.code == 1
    assert "words of a test" in run.out
    assert "At index 1 diff: 2 != 3" in run.out
    assert "SKIPPED [1] test_a.py:10: why not" in run.out
    assert "UserWarning: careful" in run.out
    assert "1 failed, 2 passed, 1 skipped, 1 warning in" in run.out
    assert run.last_line.startswith("2 passed, 1 failed, 1 skipped in ")
    assert "words of a test" in run.text_of("test_a.py::test_bad")
    assert run.report["exit_code"] == 1


def test_stopping_at_the_first_failure_begins_no_further_test(new_suite):
    code = """
def test_first(): assert 0
@pytest.mark.parametrize("n", range(30))
def test_more(n): time.sleep(0.03)
"""
    run = new_suite(test_a=code).run("-x")
    assert run.code == 1
    assert run.report["summary"]["failed"] == 1
    assert run.report["summary"]["passed"] < 10
    assert "stopping after 1 failures" in run.out


def test_shared_fixtures_are_made_once_per_module_and_class_and_dropped(new_suite):
    code = """
@pytest.fixture(scope="module")
def module(): log("module"); yield; log("drop module")
@pytest.fixture(scope="session")
def session(): log("session"); yield; log("drop session")
class TestA:
    @classmethod
    def setup_class(cls): log("class")
    @pytest.mark.parametrize("n", range(12))
    def test_c(self, n, session): time.sleep(0.01)
@pytest.mark.parametrize("n", range(12))
def test_m(n, module, session): time.sleep(0.01)
"""
    suite = new_suite(test_a=code)
    assert suite.run().code == 0
    logged = suite.logged()
    assert sorted(set(logged) - {"session", "drop session"}) == ["class", "drop module", "module"]
    assert logged.count("class") == logged.count("module") == 1
    assert logged.count("session") == logged.count("drop session") <= 2


def test_a_session_fixture_that_cannot_be_dropped_fails_the_run(new_suite):
    code = """
@pytest.fixture(scope="session")
def bad(): yield; raise OSError("still in use")
def test_a(bad): pass
"""
    run = new_suite(test_a=code).run()
    assert run.code == 1
    assert run.outcomes() == {"test_a.py::test_a": "failed"}
    assert "still in use" in run.text_of("test_a.py::test_a")


def test_durations_of_one_run_put_the_longest_first_in_the_next(new_suite):
    code = """
@pytest.mark.parametrize("n", range(8))
def test_a(n): log(n); time.sleep(0.15 if n == 5 else 0.001)
"""
    suite = new_suite(test_a=code)
    assert suite.run(units=1).code == 0
    suite.log.unlink()
    assert suite.run(units=1).code == 0
    assert suite.logged()[0] == "5"


def test_whole_files_stay_together_when_asked(new_suite):
    code = """
seen = []
@pytest.mark.parametrize("n", range(10))
def test_a(n):
    time.sleep(0.01); seen.append(n); assert seen == list(range(n + 1))
"""
    suite = new_suite(test_a=code, test_b=code)
    assert suite.run("--keep=file").code == 0


def test_a_project_that_asks_for_xdist_is_run_here_all_the_same(new_suite):
    pytest.importorskip("xdist")
    suite = new_suite(test_a="@pytest.mark.parametrize('n', range(4))\ndef test_a(n): log(n)")
    (suite.home / "pytest.ini").write_text("[pytest]\naddopts = -p xdist.plugin -n 2\n")
    run = suite.run()
    assert (run.code, sorted(suite.logged())) == (0, ["0", "1", "2", "3"])
    assert run.report["widths"]


def test_threads_that_collection_started_are_not_forked(new_suite):
    code = """
import threading
threading.Thread(target=time.sleep, args=(60,), daemon=True, name="background").start()
def test_a(): log(os.getppid())
"""
    run = new_suite(test_a=code).run()
    assert run.code == 0
    assert "one process only: collecting started threads (background)" in run.out


def test_temporary_directories_are_apart_below_the_one_given(new_suite, tmp_path: Path):
    code = """
@pytest.mark.parametrize("n", range(6))
def test_a(n, tmp_path):
    (tmp_path / "x").touch(); time.sleep(0.03); log(tmp_path); assert (tmp_path / "x").exists()
"""
    suite = new_suite(test_a=code)
    base = tmp_path / "base"
    assert suite.run(f"--basetemp={base}").code == 0
    assert len(set(suite.logged())) == 6
    assert all(Path(line).is_relative_to(base) for line in suite.logged())
