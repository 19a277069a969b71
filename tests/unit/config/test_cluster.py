"""What a cluster file says is what the spec holds, or one line says what is wrong."""

from pathlib import Path

import pytest
from msgspec import structs

from artangram.config.clusterfile import blaming, read_cluster, write_cluster
from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    JobLimits,
    QuotaSpec,
    ServiceSpec,
)
from artangram.observe.badfile import BadFile

DESIGN = """\
pools:
  cpu:    {kind: cpu, nodes: 5, cores: 256, numa: 2, memory_gb: 2400}
  gpu:    {kind: gpu, nodes: 5, devices: 8, memory_gb: 80, host_memory_gb: 3000,
           restore_gb_per_s: 16}
  search: {kind: quota, concurrency: 64, limit: 600, window_s: 60}
services:
  teacher-0: {pool: gpu, weights_gb: 60, degrees: [1, 2, 4, 8]}
"""

EVERYTHING = """\
pools:
  cpu: {kind: cpu, nodes: 1, cores: 64, memory_mb: 1500, numa: 4, squeeze_penalty: 0.1,
        create_s: 1.5, overhead_s: 0.02, pods_per_s: 10}
  gpu: {kind: gpu, nodes: 2, devices: 4, memory_gb: 40, host_memory_mb: 5, restore_mb_per_s: 7,
        cold_gb_per_s: 0.5, overhead_s: 0.1}
  calls: {kind: quota, limit: 5, window_s: 0.5, overhead_s: 0.2}
  fn: {kind: functions, ceiling: 100, cold_s: 0.4, idle_s: 0, overhead_s: 0.3}
services:
  judge: {pool: gpu, weights_gb: 30.5, degrees: [4, 2], runtime_gb: 2, batch: 8, batch_cost: 0}
jobs:
  coding: {share: 2}
  search: {}
"""

CPU = "pools:\n  cpu: {kind: cpu, nodes: 1, cores: 4, memory_gb: 8}\n"
GPU = "pools:\n  gpu: {kind: gpu, nodes: 1, devices: 4, memory_gb: 40}\n"


def a_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return path


def simulated(path: Path) -> ClusterSpec:
    """As `artangram simulate` reads it."""
    with blaming(path, always=True):
        return read_cluster(path).simulated()


def complaint(path: Path) -> str:
    """The one line a person reads, without the directory."""
    with pytest.raises(BadFile) as caught:
        simulated(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), path.name)


def test_example_of_the_design_is_read(tmp_path):
    cluster = simulated(a_file(tmp_path, DESIGN))
    assert cluster.pools == {
        "cpu": CpuSpec(nodes=5, cores=256, numa=2, memory_mb=2_400_000),
        "gpu": GpuSpec(
            nodes=5, devices=8, memory_mb=80_000, host_memory_mb=3_000_000, restore_mb_per_s=16_000
        ),
        "search": QuotaSpec(concurrency=64, limit=600, window_s=60),
    }
    assert cluster.services == {
        "teacher-0": ServiceSpec(pool="gpu", weights_mb=60_000, degrees=(1, 2, 4, 8))
    }
    assert cluster.shares == {}


def test_every_field_of_every_spec_is_a_key(tmp_path):
    cluster = simulated(a_file(tmp_path, EVERYTHING))
    assert cluster.pools["cpu"] == CpuSpec(
        nodes=1, cores=64, memory_mb=1500, numa=4, squeeze_penalty=0.1, create_s=1.5,
        overhead_s=0.02, pods_per_s=10.0)  # fmt: skip
    assert cluster.pools["gpu"] == GpuSpec(
        nodes=2, devices=4, memory_mb=40_000, host_memory_mb=5, restore_mb_per_s=7.0,
        cold_mb_per_s=500.0, overhead_s=0.1)  # fmt: skip
    assert cluster.pools["calls"] == QuotaSpec(limit=5, window_s=0.5, overhead_s=0.2)
    assert cluster.pools["fn"] == FunctionsSpec(ceiling=100, cold_s=0.4, idle_s=0, overhead_s=0.3)
    assert cluster.services["judge"] == ServiceSpec(
        pool="gpu", weights_mb=30_500, degrees=(2, 4), runtime_mb=2000, batch=8, batch_cost=0.0
    )
    assert cluster.shares == {"coding": 2.0, "search": 1.0}


@pytest.mark.parametrize(
    ("written", "changed", "says"),
    [
        ("cores", "core", "core: unknown key; did you mean cores?"),
        ("kind: cpu, ", "", "kind: is missing; use one of cpu, gpu"),
        ("kind: cpu", "kind: cpus", "kind: unknown kind 'cpus'; did you mean cpu?"),
        ("kind: cpu", "kind: 3", "kind: 3 is not a name"),
        ("kind: cpu", "kind: !!timestamp abc", "kind: 'abc' has no meaning"),
        ("cores: 4, ", "", "cores: is missing; add it"),
        (", memory_gb: 8", "", "memory_gb: is missing; add it"),
        ("nodes: 1", "nodes: 0", "nodes: 0 is out of range; give 1 to"),
        ("nodes: 1", "nodes: -1", "nodes: -1 is out of range"),
        ("nodes: 1", "nodes: 1.5", "nodes: 1.5 is not a whole number"),
        ("nodes: 1", "nodes: two", "nodes: 'two' is not a number; give a number"),
        ("nodes: 1", "nodes: '12'", "nodes: '12' is not a number; write 12"),
        ("nodes: 1", "nodes: 1e3", "nodes: '1e3' is not a number; write 1000"),
        ("nodes: 1", "nodes: yes", "nodes: True is not a number"),
        ("nodes: 1", "nodes: .inf", "nodes: inf is not a finite number"),
        ("nodes: 1", f"nodes: {10**400}", "nodes: 10000000000000000000 is not a finite number"),
        ("nodes: 1", "nodes: [1]", "nodes: is not a single value"),
        ("nodes: 1", "nodes: 9999999", "nodes: 9999999 is out of range"),
        ("8}", "8, memory_mb: 9}", "memory_mb: memory_mb is already given"),
        ("memory_gb: 8", "memory_gb: 0", "memory_gb: 0 is out of range; give 1 to 1000000000000"),
        ("memory_gb: 8", "memory_gb: 1.0e+308", "memory_gb: 1e+308 is out of range; give 1 to"),
        ("1, cores: 4", "9999, cores: 999", "cores: 9989001 in all nodes are too many; give at"),
        ("8}", "8, numa: 5}", "numa: 5 domains of 4 cores"),
        ("8}", "8, create_s: -1}", "create_s: -1 is out of range; give 0 to 1e+09"),
        ("8}", "8, create_s: 1.0e+10}", "create_s: 10000000000.0 is out of range; give 0 to 1e+09"),
        ("8}", "8, squeeze_penalty: 1}", "squeeze_penalty: 1 is not a share"),
        ("8}", "8, pods_per_s: 0}", "pods_per_s: 0 is out of range; give 1e-06 to 1e+09"),
        ("8}", "8, pods_per_s: 1.0e-9}", "pods_per_s: 1e-09 is out of range; give 1e-06 to"),
        ("8}", "8, pods_per_s: 1e-3}", "pods_per_s: '1e-3' is not a number; write 0.001"),
        ("8}", "8, pods_per_s: 2e-5}", "pods_per_s: '2e-5' is not a number; write 2.0e-05"),
        ("8}", "8, nodes: 2}", "nodes: comes twice"),
    ],
)
def test_bad_pool_is_one_complaint(tmp_path, written, changed, says):
    line = complaint(a_file(tmp_path, CPU.replace(written, changed)))
    assert line.startswith(f"c.yaml:2: pools.cpu.{says}")
    assert "; " in line


@pytest.mark.parametrize(("gb", "mb"), [("64.1", 64_100), ("1.001", 1001), ("0.002", 2)])
def test_a_size_in_gb_is_the_same_in_mb(tmp_path, gb, mb):
    cluster = simulated(a_file(tmp_path, CPU.replace("memory_gb: 8", f"memory_gb: {gb}")))
    assert cluster.pools["cpu"] == CpuSpec(nodes=1, cores=4, memory_mb=mb)


def test_a_number_that_is_proposed_is_one(tmp_path):
    written = CPU.replace("8}", "8, create_s: 3e-7}")
    proposed = complaint(a_file(tmp_path, written)).rpartition("write ")[2]
    cluster = simulated(a_file(tmp_path, written.replace("3e-7", proposed)))
    assert cluster.pools["cpu"] == CpuSpec(nodes=1, cores=4, memory_mb=8000, create_s=3e-7)


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ("weights_gb: 1, pol: gpu", ".pol: unknown key; did you mean pool?"),
        ("pool: cpu, weights_gb: 1", ".pool: 'cpu' is not a GPU pool; did you mean gpu?"),
        ("pool: gpus, weights_gb: 1", ".pool: 'gpus' is not a GPU pool; did you mean gpu?"),
        ("pool: gpu", ".weights_gb: is missing; add it"),
        ("pool: gpu, weights_gb: 0", ".weights_gb: 0 is out of range"),
        ("pool: gpu, weights_gb: 1, degrees: [3]", ".degrees: 3 cannot be placed; give powers"),
        ("pool: gpu, weights_gb: 1, degrees: [8]", ".degrees: 8 cannot be placed; give powers"),
        ("pool: gpu, weights_gb: 1, degrees: []", ".degrees: is empty"),
        ("pool: gpu, weights_gb: 1, degrees: 2", ".degrees: is not a list"),
        ("pool: gpu, weights_gb: 1, degrees: [x]", ".degrees[0]: 'x' is not a number"),
        ("pool: gpu, weights_gb: 90, degrees: [1, 2]", ": needs 45000 MB on each device"),
    ],
)
def test_bad_service_is_one_complaint(tmp_path, service, says):
    text = CPU + GPU.replace("pools:\n", "") + f"services:\n  t: {{{service}}}\n"
    line = complaint(a_file(tmp_path, text))
    assert line.startswith(f"c.yaml:5: services.t{says}")
    assert "; " in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CPU.replace("pools", "pool"), "c.yaml:2: pool: unknown key; did you mean pools?"),
        (CPU + "service: {}\n", "c.yaml:3: service: unknown key; did you mean services?"),
        (CPU.replace("cpu:", "7:"), "c.yaml:2: pools.7: is not a name"),
        (CPU + "jobs: {a: {share: 0}}\n", "c.yaml:3: jobs.a.share: 0 is out of range"),
        (CPU + "jobs: {a: {shar: 1}}\n", "c.yaml:3: jobs.a.shar: unknown key; did you mean sha"),
        (GPU + "services: {t: {pool: x, weights_gb: 1}}\n", "c.yaml:3: services.t.pool: 'x' is"),
        (CPU + "services: {t: {pool: x, weights_gb: 1}}\n", "c.yaml:3: services.t.pool: 'x' is"),
        ("pools:\n  s: {kind: quota}\n", "c.yaml:2: pools.s: limits nothing; give concurrency"),
        ("pools:\n  s: {kind: quota, limit: 5, window_s: 0}\n", "c.yaml:2: pools.s.window_s: 0"),
        (GPU.replace("nodes: 1", "nodes: 999999"), "c.yaml:2: pools.gpu.devices: 3999996 in all"),
        ("pools: {}\n", "c.yaml:1: pools: is empty"),
        ("pools: !!python/object:os.system {}\n", "c.yaml:1: pools: is empty"),
        ("pools:\n  - cpu\n", "c.yaml:2: pools: is not a mapping"),
        ("jobs: {}\n", "c.yaml:1: pools: is missing"),
        ("", "c.yaml: file: it is empty"),
        ("pools: {cpu: [\n", "c.yaml:2: yaml: "),
        ("pools:\n\t- x\n", "c.yaml:2: yaml: "),
    ],
)
def test_bad_file_is_one_complaint(tmp_path, text, says):
    line = complaint(a_file(tmp_path, text))
    assert line.startswith(says)
    assert "; " in line


def test_weights_may_fit_only_at_a_high_degree(tmp_path):
    text = GPU + "services:\n  t: {pool: gpu, weights_gb: 150, degrees: [1, 4]}\n"
    assert simulated(a_file(tmp_path, text)).services["t"].device_mb(4) == 37_500


def test_missing_file_and_wrong_bytes_are_complaints(tmp_path):
    assert complaint(tmp_path / "no.yaml").startswith("no.yaml: file: no such file")
    for data in (CPU.encode() + b"# \xfc\n", CPU.encode("utf-16")):
        (tmp_path / "c.yaml").write_bytes(data)
        assert complaint(tmp_path / "c.yaml").endswith("file: is not UTF-8 text; save it as UTF-8")
    (tmp_path / "c.yaml").write_bytes(CPU.encode() + b"# \xfc\n")
    assert complaint(tmp_path / "c.yaml").startswith("c.yaml:3: file: ")
    (tmp_path / "c.yaml").write_text(CPU + "# \x00\n")
    assert complaint(tmp_path / "c.yaml") == "c.yaml:3: yaml: character #x0000; remove it"


def test_a_mark_of_the_byte_order_is_no_part_of_the_file(tmp_path):
    (tmp_path / "c.yaml").write_text(CPU, encoding="utf-8-sig")
    assert simulated(tmp_path / "c.yaml").pools["cpu"].cores == 4


def test_endless_nesting_and_cycles_are_complaints(tmp_path):
    assert complaint(a_file(tmp_path, "[" * 5000)).startswith("c.yaml")
    assert complaint(a_file(tmp_path, "pools: &a\n  cpu: *a\n")).startswith("c.yaml")


def test_a_cluster_that_could_not_be_read_back_is_not_written(tmp_path):
    huge = ServiceSpec(pool="gpu", weights_mb=10**6)
    spec = structs.replace(simulated(a_file(tmp_path, GPU)), services={"t": huge})
    with pytest.raises(BadInput, match=r"^services\.t: needs 1000000 MB on each device"):
        write_cluster(tmp_path / "new.yaml", spec)
    assert not (tmp_path / "new.yaml").exists()


def test_jobs_may_have_a_minimum_and_a_maximum(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "pools: {cpu: {kind: cpu, cores: 8, memory_mb: 100}}\n"
        "jobs: {a: {share: 2, max_memory_gb: 2, min_trajectories: 0},\n"
        "  b: {max_trajectories: 3, min_cores: 0, max_cores: 16}}\n"
    )
    cluster = read_cluster(path).simulated()
    limits = {"a": JobLimits(max_memory_mb=2000), "b": JobLimits(max_trajectories=3, max_cores=16)}
    assert (cluster.shares, cluster.limits) == ({"a": 2.0, "b": 1.0}, limits)
    write_cluster(tmp_path / "again.yaml", cluster)
    assert read_cluster(tmp_path / "again.yaml").simulated() == cluster
