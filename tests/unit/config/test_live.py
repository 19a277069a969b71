"""One file for both verbs: what `up` takes from it, what `simulate` does, and what each ignores."""

from pathlib import Path

import pytest
from msgspec import structs

from artangram.apis.spec import ApiSpec
from artangram.config.cluster import (
    CPU,
    ClusterFile,
    CpuEntry,
    FunctionsEntry,
    GpuEntry,
    QuotaEntry,
    ServiceEntry,
)
from artangram.config.clusterfile import KINDS, blaming, read_cluster
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.observe.badfile import BadFile
from artangram.orchestrator.callbackends import Cuda, Vllm
from artangram.orchestrator.local import running
from artangram.sandbox import FakeProvider
from artangram.services.service import Service

BOTH = """\
policy: tangram
pools:
  cpu: {kind: cpu, nodes: 4, cores: 1, memory_gb: 0.5, create_s: 0.1}
  functions: {kind: functions, ceiling: 3}
  search: {kind: quota, limit: 60, window_s: 10, overhead_s: 0.5}
  spare: {kind: cpu, nodes: 2, cores: 64, memory_gb: 100}
functions: ["artangram.envs.tasks.calc:worked_out"]
apis:
  search: {base_url: "http://localhost:1", headers: {key: "${HOME}"}}
  browse: {base_url: "http://localhost:1", concurrency: 4}
images: [/srv/images]
jobs:
  urgent: {share: 3}
  other: {}
"""

SERVICES = """\
pools:
  gpu: {kind: gpu, devices: 2, memory_gb: 40, restore_gb_per_s: 8}
services:
  judge: {loader: "judges:load", weights_gb: 7, degrees: [1, 2], options: {size: 3}}
  teacher: {pool: gpu, weights_gb: 60, degrees: [2]}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return path


def test_what_a_live_cluster_takes(tmp_path: Path) -> None:
    described = read_cluster(written(tmp_path, BOTH))
    options = described.options
    assert (described.cores, described.memory_mb, described.policy) == (1, 500, "tangram")
    assert described.images == ("/srv/images",)
    assert described.shares == {"urgent": 3.0, "other": 1.0}
    assert options.functions == ("artangram.envs.tasks.calc:worked_out",)
    assert (options.workers, options.platform_calls, options.devices) == (3, 64, 0)
    assert options.apis["search"] == ApiSpec(
        base_url="http://localhost:1", headers={"key": "${HOME}"}, limit=60, window_s=10.0
    )


def test_services_of_a_live_cluster_have_a_loader(tmp_path: Path) -> None:
    options = read_cluster(written(tmp_path, SERVICES)).options
    assert (options.devices, options.device_memory_mb) == (2, 40_000)
    assert options.services == (
        Service(id="judge", loader="judges:load", degrees=(1, 2), options={"size": 3}),
    )


def test_a_simulated_service_takes_as_many_calls_as_the_live_one(tmp_path: Path) -> None:
    services = read_cluster(written(tmp_path, SERVICES)).simulated().services
    assert services["judge"].batch == Service(id="judge", loader="judges:load").batch
    assert services["teacher"] == ServiceSpec(pool="gpu", weights_mb=60_000, degrees=(2,))


def test_weights_are_measured_where_their_files_are(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(3 << 20))
    file = written(
        tmp_path,
        "pools: {gpu: {kind: gpu, devices: 1, memory_gb: 1}}\n"
        f'services: {{a: {{loader: "m:f", weights: [{tmp_path / "w.bin"}]}}}}',
    )
    assert read_cluster(file).simulated().services["a"].weights_mb == 3


def test_a_file_may_set_the_fence(tmp_path: Path) -> None:
    assert read_cluster(written(tmp_path, "fence_s: 90")).fence_s == 90.0
    assert read_cluster(written(tmp_path, "policy: fcfs")).fence_s == 30.0


def test_each_verb_says_what_it_ignores(tmp_path: Path) -> None:
    described = read_cluster(written(tmp_path, BOTH))
    assert list(described.ignored_live()) == [
        *("pools.cpu.nodes", "pools.cpu.create_s", "pools.search.overhead_s", "pools.spare")
    ]
    assert list(described.ignored_in_simulation()) == [
        *("apis.search.base_url", "apis.search.headers", "apis.browse.base_url", "images")
    ]
    described = read_cluster(written(tmp_path, SERVICES))
    assert list(described.ignored_live()) == [
        *("pools.gpu.restore_mb_per_s", "services.judge.weights_mb", "services.teacher")
    ]
    assert list(described.ignored_in_simulation()) == [
        *("services.judge.loader", "services.judge.options")
    ]


@pytest.mark.parametrize(
    ("pool", "devices"),
    [
        ("backend: cuda", Cuda()),
        ("backend: cuda, devices: 8, memory_gb: 80", Cuda()),
        ("backend: vllm, devices: 8, memory_gb: 80", Vllm(count=8, memory_mb=80_000)),
        ("backend: cpu, devices: 2", 2),
    ],
)
def test_what_devices_are_made_of(tmp_path: Path, pool: str, devices: object) -> None:
    file = written(tmp_path, f"pools: {{gpu: {{kind: gpu, {pool}}}}}")
    assert read_cluster(file).options.devices == devices


async def test_the_scheduler_has_the_same_cluster_live_and_simulated(tmp_path: Path) -> None:
    described = read_cluster(written(tmp_path, BOTH))
    foreseen = described.simulated()
    async with running(
        policy=described.policy,
        cores=described.cores,
        memory_mb=described.memory_mb,
        shares=described.shares,
        options=described.options,
        provider=FakeProvider(),
    ) as (orchestrator, _):
        live = orchestrator.setup.cluster
    assert live.shares == foreseen.shares
    assert live.pools.keys() == foreseen.pools.keys() - {"spare"}
    for name in ("functions", "platform", "browse"):
        assert live.pools[name] == foreseen.pools[name]
    assert structs.replace(live.pools["search"], overhead_s=0.5) == foreseen.pools["search"]
    assert structs.replace(live.pools[CPU], nodes=4, create_s=0.1) == foreseen.pools[CPU]


@pytest.mark.parametrize(
    "entry", [CpuEntry, GpuEntry, QuotaEntry, FunctionsEntry], ids=lambda entry: entry.__name__
)
def test_an_entry_has_every_field_of_its_spec_and_no_default(entry) -> None:
    own = set(entry.__struct_fields__) - {"backend"}
    assert own == set(entry.spec.__struct_fields__)
    assert entry.used_live <= set(entry.__struct_fields__)
    assert set(entry.__struct_defaults__) == {None}
    assert entry in KINDS.values()


def test_an_entry_of_a_service_has_every_field_of_both() -> None:
    wanted = set(ServiceSpec.__struct_fields__) | set(Service.__struct_fields__) - {"id"}
    assert set(ServiceEntry.__struct_fields__) == wanted


def test_an_empty_description_is_this_machine() -> None:
    described = ClusterFile()
    assert (described.cores, described.memory_mb, described.options.devices) == (None, None, 0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jobs: {a: {share: 0}}", r"cluster\.yaml:1: jobs\.a\.share: 0 is out of range; give"),
        ("jobs: {a: {shares: 2}}", r"cluster\.yaml:1: jobs\.a\.shares: unknown key; did you mean"),
        ("polcy: fcfs", r"cluster\.yaml:1: polcy: unknown key; did you mean policy"),
        ("policy: fcfs\nworkers: 2", r"cluster\.yaml:2: workers: belongs to a pool; write it as"),
        ("policy: 7", r"cluster\.yaml:1: policy: 7 is not a name"),
        (
            "policy: fcfs\nservices:\n  judge: {loder: 'a:b'}",
            r"cluster\.yaml:3: services\.judge\.loder",
        ),
        (
            "policy: fcfs\nservices:\n  judge: {loader: 'a:b'}",
            r"cluster\.yaml:3: services: need devices to run on; describe them",
        ),
        ("apis:\n  search: {limit: 3}", r"cluster\.yaml:2: apis\.search: .*base_url"),
        ("apis:\n  search: {base_url: x, limit: many}", r"apis\.search\.limit: expected"),
        (
            "pools: {s: {kind: quota, limit: 3}}\napis:\n  s: {base_url: x, limit: 3}",
            r"cluster\.yaml:3: apis\.s\.limit: pools\.s has the limits; remove it",
        ),
        (
            "pools: {s: {kind: cpu}}\napis:\n  s: {base_url: x, limit: 3}",
            r"cluster\.yaml:3: apis\.s: is another resource of this cluster; use another name",
        ),
        ("pools: {gpu: {kind: gpu, backend: tpu}}", r"pools\.gpu\.backend: invalid .* 'tpu'"),
        ("pools:\n  gpu: {kind: gpu}", r"cluster\.yaml:2: pools\.gpu\.devices: is missing; add"),
        (
            "pools:\n  gpu: {kind: gpu, backend: vllm, devices: 1}",
            r"cluster\.yaml:2: pools\.gpu\.memory_gb: is missing; add",
        ),
        ("services: [judge]", r"services: is not a mapping"),
        ("", r"cluster\.yaml: file: it is empty; write what it should describe"),
        ("policy: fcfs\nfunctions: &a [*a]", r"cluster\.yaml:2: yaml: a value holds itself"),
        (
            "services: {a: &a {loader: x, options: *a}}",
            r"cluster\.yaml:1: yaml: a value holds itself",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadFile, match=complaint), blaming(file):
        read_cluster(file).options  # noqa: B018 - asked for its complaints.


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("policy: fcfs", r"cluster\.yaml:1: pools: is missing; describe at least one"),
        ("pools:\n  cpu: {kind: cpu}", r"cluster\.yaml:2: pools\.cpu\.cores: is missing; add it"),
        (
            "pools: {a: {kind: gpu, devices: 1, memory_gb: 1}, b: {kind: gpu, devices: 1, "
            "memory_gb: 1}}\nservices:\n  s: {weights_gb: 1}",
            r"cluster\.yaml:3: services\.s\.pool: is missing; name one of a, b",
        ),
        (
            'pools: {gpu: {kind: gpu, devices: 1, memory_gb: 1}}\nservices:\n  s: {loader: "m:f"}',
            r"cluster\.yaml:3: services\.s\.weights_gb: is missing; add it",
        ),
    ],
)
def test_what_a_simulation_cannot_discover_is_named(tmp_path: Path, text, complaint) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadFile, match=complaint), blaming(file, always=True):
        read_cluster(file).simulated()
