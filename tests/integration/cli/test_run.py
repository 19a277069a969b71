"""`artangram run` in a real sandbox: what a command prints, when, and with which code it ends."""

import json
import signal
import subprocess
import sys

from artangram.orchestrator.httppolicy import MOST_OUTPUT_BYTES

RUN = [sys.executable, "-c", "from artangram.cli import main; main()", "run"]
VERB = [*RUN, "--"]


def test_it_prints_what_the_command_prints_and_ends_as_it_does():
    done = subprocess.run(
        [*VERB, "sh", "-c", "printf '\\377'; echo two >&2; exit 3"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"\xff", b"two\n")


def test_what_never_started_is_said():
    done = subprocess.run([*VERB, "no-such-program"], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == "failed: no-such-program: No such file or directory\n"


def test_the_report_tells_what_never_started_from_what_failed(tmp_path):
    told = []
    for argv in (["no-such-program"], ["sh", "-c", "exit 127"]):
        report = tmp_path / "report.json"
        subprocess.run([*RUN, "--json", str(report), "--", *argv], capture_output=True, check=False)
        found = json.loads(report.read_text())
        told.append((found["exit_code"], found["start_error"]))
    assert told == [(127, "No such file or directory"), (127, "")]


def test_it_prints_while_the_command_runs_and_ctrl_c_ends_it():
    argv = [*VERB, "sh", "-c", "echo begun; sleep 1000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as verb:
        assert verb.stdout is not None
        assert verb.stdout.readline() == b"begun\n"
        verb.send_signal(signal.SIGINT)
        said = verb.communicate()
    assert (verb.returncode, *said) == (130, b"", b"")


def test_what_is_left_out_of_its_output_is_said():
    more = MOST_OUTPUT_BYTES + 100
    done = subprocess.run(
        [*VERB, "head", "-c", str(more), "/dev/zero"], capture_output=True, check=True
    )
    assert len(done.stdout) == MOST_OUTPUT_BYTES
    assert done.stderr.startswith(b"truncated: 100 bytes of its output were dropped; ")


def test_a_file_that_does_not_fit_is_said_in_one_line(tmp_path):
    large = tmp_path / "large"
    large.write_bytes(bytes(40 << 20))
    argv = [*RUN, "--memory-mb", "64", "--file", str(large), "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: large: No space left on device, in the sandbox; give ")
