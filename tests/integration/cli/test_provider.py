"""The kind of sandboxes that a cluster's file names is the one that its cluster has."""

import os
import shutil
from pathlib import Path

import pytest

from artangram.cli.client import client
from artangram.config.clusterfile import read_cluster
from artangram.config.providers import providers_of
from artangram.core.errors import BadInput
from artangram.observe.badfile import BadFile
from artangram.pipeline.clusterclient import own_cluster

CONTAINER = """
pools:
  cpu: {kind: cpu, cores: 1, memory_mb: 512}
provider: container
"""
needs_engine = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("podman"), reason="no container engine here"
)


def a_file(folder: Path, text: str) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


@needs_engine
async def test_a_cluster_of_one_verb_has_the_provider_of_its_file(tmp_path: Path) -> None:
    described = read_cluster(a_file(tmp_path, CONTAINER))
    async with client(None, None, described) as one, one.trajectory(memory_mb=128) as t:
        assert await provider_of(one.backend) == "container"
        assert (await t.run(["true"])).ok


async def provider_of(backend: object) -> str:
    agents = backend.orchestrator.nodes.values()  # type: ignore[attr-defined]
    return ", ".join(offer.kind for agent in agents for offer in agent.offers)


@needs_engine
async def test_a_run_of_its_own_cluster_has_the_provider_of_its_file(tmp_path: Path) -> None:
    described = read_cluster(a_file(tmp_path, CONTAINER))
    opened = own_cluster(
        tmp_path / "state", job="j", cores=1, providers=providers_of(described.provider)
    )
    async with opened as cluster, cluster.client.trajectory(memory_mb=128) as t:
        result = await t.run(["true"])
        assert result.ok, result.reason
        agents = [arg for arg in commands() if "--provider\0container" in arg]
        assert agents


def commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def test_a_provider_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="provider"):
        read_cluster(a_file(tmp_path, "provider: magic\n"))


def test_several_providers_stand_in_the_file_side_by_side(tmp_path: Path) -> None:
    both = read_cluster(a_file(tmp_path, "provider: [namespace, container]\n"))
    assert providers_of(both.provider) == ("namespace", "container")
    twice = read_cluster(a_file(tmp_path, "provider: [strongest, namespace]\n"))
    with pytest.raises(BadInput, match="one twice"):
        providers_of(twice.provider)
