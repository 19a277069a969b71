"""The file of a cluster: what it may say, and how it complains."""

from pathlib import Path

import pytest

from artangram.apis.spec import ApiSpec
from artangram.config.live import read_live
from artangram.observe.badfile import BadFile
from artangram.orchestrator.callbackends import Cuda
from artangram.services.service import Service


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return path


def test_a_cluster_with_everything(tmp_path: Path) -> None:
    client = read_live(
        written(
            tmp_path,
            """
cores: 2
policy: tangram
images: [/srv/images]
devices: 1
device_memory_mb: 512
functions: ["rewards:score"]
services:
  judge: {loader: "judges:load", batch: 4, degrees: [1, 2], options: {size: 3}}
apis:
  search: {base_url: "http://localhost:1", limit: 60, window_s: 10}
jobs:
  urgent: {share: 3}
  other: {}
""",
        )
    )
    assert (client.cores, client.policy, client.options.devices) == (2, "tangram", 1)
    assert client.images == ("/srv/images",)
    assert client.shares == {"urgent": 3.0, "other": 1.0}
    assert client.options.functions == ("rewards:score",)
    assert client.options.services == (
        Service(id="judge", loader="judges:load", batch=4, degrees=(1, 2), options={"size": 3}),
    )
    assert client.options.apis == {
        "search": ApiSpec(base_url="http://localhost:1", limit=60, window_s=10.0)
    }


def test_a_cluster_on_gpus(tmp_path: Path) -> None:
    client = read_live(written(tmp_path, "devices: {kind: cuda}\nplatform_calls: 8"))
    assert client.options.devices == Cuda()
    assert client.options.platform_calls == 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jobs: {a: {share: 0}}", r"cluster\.yaml:1: jobs\.a: 0\.0 is no share; give a number"),
        ("jobs: {a: {shares: 2}}", r"cluster\.yaml:1: jobs\.a\.shares: unknown key; did you mean"),
        ("coers: 2", r"cluster\.yaml:1: coers: unknown key; did you mean cores"),
        ("cores: two", r"cluster\.yaml:1: cores: expected `int"),
        (
            "cores: 1\nservices:\n  judge: {loder: 'a:b'}",
            r"cluster\.yaml:3: services\.judge\.loder",
        ),
        ("apis:\n  search: {limit: 3}", r"cluster\.yaml:2: apis\.search: .*base_url"),
        ("apis:\n  search: {base_url: x, limit: many}", r"apis\.search\.limit: expected"),
        ("devices: {kind: tpu}", r"cluster\.yaml:1: devices: invalid value 'tpu'"),
        ("devices: {kind: cuda, count: 2}", r"cluster\.yaml:1: devices.*count"),
        ("services: [judge]", r"services: is not a mapping"),
        ("", r"cluster\.yaml: file: it is empty; write what it is to describe"),
        ("cores: 1\nfunctions: &a [*a]", r"cluster\.yaml:2: yaml: a value holds itself"),
        (
            "services: {a: &a {loader: x, options: *a}}",
            r"cluster\.yaml:1: yaml: a value holds itself",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadFile, match=complaint):
        read_live(written(tmp_path, text))
