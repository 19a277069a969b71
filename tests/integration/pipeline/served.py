"""`artangram up` and `artangram train` as processes that a test may kill."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from process_support import environ

from artangram.core.scheduling.decisions import Report
from artangram.core.scheduling.events import Submitted
from artangram.observe.recording import recorded
from artangram.pipeline.metrics import read
from artangram.pipeline.runstate import STATE_NAME, RunState
from artangram.train.checkpoint import latest
from integration.pipeline.clusterwork import SERVICE

TOKEN = "a token of this test"
PATIENCE_S = 600.0
"""Far longer than anything here takes, even on a busy machine."""

CLUSTER = f"""
pools:
  cpu: {{kind: cpu, cores: 2}}
  gpu: {{kind: gpu, devices: 1, memory_mb: 1024}}
services: {{{SERVICE}: {{loader: "integration.pipeline.clusterwork:teller"}}}}
"""

RUN = """
name: {name}
model: {model}
tasks: {{words: {{task: "integration.pipeline.clusterwork:Clusterwork", options: {{job: {name}}}}}}}
cluster: cluster.yaml
steps: {steps}
groups: 4
group_size: 4
environments: 16
checkpoint_every: 1
train: {{epochs: 1, min_samples: 1}}
"""


class Served:
    """Files of a cluster and its runs in one directory, and the processes that use them."""

    def __init__(self, place, model=Path("nowhere")):
        self.place = place
        self.state = place / "state"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.model = model
        (place / "cluster.yaml").write_text(CLUSTER)
        self._started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
            process.wait()

    def up(self):
        port, log = self.url.rpartition(":")[2], self.place / "up.log"
        process = self._start(
            *("up", "--port", port, "--state-dir", self.state, "--token", TOKEN),
            self.place / "cluster.yaml",
            log=log,
        )
        until(lambda: "Serving" in log.read_text(), process)
        return process

    def train(self, name, *options, steps, resume=False):
        """A run, against the service if `options` say so."""
        file = self.place / f"{name}.yaml"
        file.write_text(RUN.format(name=name, model=self.model, steps=steps))
        return self.train_file(file, *options, *(("--resume",) if resume else ()))

    def train_file(self, file, *options):
        log = self.place / f"{file.stem}.log"
        return self._start("train", file, "--out", self.place / "out", *options, log=log)

    @property
    def service(self):
        return ("--url", self.url, "--token", TOKEN)

    def records(self, name):
        return read(self.place / "out" / name / "metrics.jsonl")

    def position(self, name):
        """The accounts of the task at the last checkpoint."""
        newest = latest(self.place / "out" / name / "checkpoints")
        state = msgspec.msgpack.decode((newest / STATE_NAME).read_bytes(), type=RunState)
        return state.rollout.source.tasks["words"]

    def wait_for_steps(self, name, count, process):
        until(lambda: len(self.records(name)) >= count, process)

    def _start(self, *argv, log):
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", "from artangram.cli import main; main()", *map(str, argv)],
                env=environ(OMP_NUM_THREADS="1"),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process


def finished(process):
    """Its exit code, when it has ended by itself."""
    return process.wait(timeout=PATIENCE_S)


def until(condition, process):
    """Return when it holds; the process must live that long."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < give_up_at, "nothing happens"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)


def killed(pid):
    os.kill(pid, signal.SIGKILL)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def balanced(position):
    done = position.trained + sum(position.dropped.values()) + len(position.outstanding)
    return position.drawn == done


def actions(state_dir):
    """By action: how often it was submitted and how often reported, and its record."""
    submitted, reported = {}, {}
    for entry in recorded(state_dir):
        for event in entry.events:
            if isinstance(event, Submitted):
                submitted[event.action.id] = submitted.get(event.action.id, 0) + 1
        for decision in entry.decisions:
            if isinstance(decision, Report):
                reported.setdefault(decision.record.action_id, []).append(decision.record)
    return submitted, reported
