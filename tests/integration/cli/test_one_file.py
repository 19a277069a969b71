"""The cluster file of examples/: `simulate` foresees the cluster that `up` opens with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

import artangram
from artangram.config.clusterfile import read_cluster
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import CpuSpec, ServiceSpec
from artangram.orchestrator.providing import provider_labels

CPU = Resource("cpu")
EXAMPLES = Path(__file__).parents[3] / "examples"
VERB = [sys.executable, "-c", "from artangram.cli import main; main()"]


BESIDE = {"PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, "."]))}
"""The modules that the file names lie beside it."""


def verb(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*VERB, *map(str, argv)],
        cwd=EXAMPLES,
        env=os.environ | BESIDE,
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture
def served(tmp_path: Path):
    """The example as a service: its address, the state directory and what it printed."""
    ready, printed = tmp_path / "up.json", tmp_path / "printed"
    os.mkfifo(ready)
    argv = ["up", "cluster.yaml", "--port", "0", "--state-dir", tmp_path / "s", "--json", ready]
    with printed.open("w") as out:
        process = subprocess.Popen(
            [*VERB, *map(str, argv), "--token", "t"],
            cwd=EXAMPLES,
            env=os.environ | BESIDE,
            stdout=out,
            stderr=out,
        )
    try:
        yield msgspec.json.decode(ready.read_bytes())["url"], tmp_path / "s", printed
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def test_the_example_is_simulated() -> None:
    done = verb("simulate", "--cluster", "cluster.yaml", "--trace", "day.jsonl", "--json", "-")
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout)
    assert (report["actions"], report["failed"]) == (6, 0)
    assert done.stderr.startswith("cluster.yaml: `simulate` ignores services.judge.loader, apis.")


async def test_the_example_is_served_as_it_was_foreseen(served, tmp_path: Path) -> None:
    url, state, printed = served
    said = printed.read_text()
    assert "cluster.yaml: `up` ignores services.judge.weights_mb\n" in said
    async with artangram.connect(url, token="t") as client:
        assert (await client.call("judge", {"text": "x" * 100}))["score"] == 0.5
    trace, ran = tmp_path / "t.jsonl", tmp_path / "ran.yaml"
    recorded = verb("trace", "record", state, trace, "--cluster", ran)
    assert recorded.returncode == 0, recorded.stderr
    live, foreseen = read_cluster(ran).simulated(), read_cluster(EXAMPLES / "cluster.yaml")
    wanted_pools = foreseen.simulated().pools
    cpu = wanted_pools[CPU]
    assert isinstance(cpu, CpuSpec)
    # The service adds the providers that it found.
    wanted_pools[CPU] = structs.replace(cpu, labels=provider_labels(["namespace"]))
    assert live.pools == wanted_pools
    assert live.shares == foreseen.simulated().shares
    judge = live.services["judge"]
    wanted = foreseen.simulated().services["judge"]
    measured = {"runtime_mb", "weights_mb", "batch_cost", "restore_s"}
    for field in set(ServiceSpec.__struct_fields__) - measured:
        assert getattr(judge, field) == getattr(wanted, field)
