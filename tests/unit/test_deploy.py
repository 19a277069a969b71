"""What deploy/ holds: manifests of Kubernetes that are valid, and options that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from artangram.cli.verbs import app

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERAY = DEPLOY / "kubernetes" / "kuberay.yaml"
MANIFESTS = sorted(set((DEPLOY / "kubernetes").glob("*.yaml")) - {KUBERAY})
KUBERNETES = "1.33"
"""The first version with user namespaces for pods by default."""
LEAST = {"apiVersion", "kind", "metadata", "spec"}


def resources() -> list[dict[str, Any]]:
    return [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text())]


def pods() -> Iterator[dict[str, Any]]:
    for one in resources():
        if "template" in one["spec"]:
            yield one["spec"]["template"]


def containers() -> list[dict[str, Any]]:
    return [container for pod in pods() for container in pod["spec"]["containers"]]


def options(verb: str) -> set[str]:
    """Of a verb, as they are typed."""
    command: Any = get_command(app())
    params = command.commands[verb].params
    return {name for param in params for name in param.opts if name.startswith("--")}


def test_there_is_a_head_and_an_agent_for_every_machine() -> None:
    assert [one["kind"] for one in resources()] == ["DaemonSet", "Service", "StatefulSet"]
    assert all(set(one) >= LEAST and one["metadata"]["name"] for one in resources())


@pytest.mark.parametrize("number", range(3))
def test_manifests_follow_the_schema_of_the_api(number: int) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(resources()[number], KUBERNETES, strict=True)


def test_containers_run_verbs_with_options_that_exist() -> None:
    verbs = []
    for container in containers():
        program, verb = container["command"]
        assert program == "artangram"
        verbs.append(verb)
        given = {word.partition("=")[0] for word in container["args"]}
        assert given <= options(verb), verb
    assert verbs == ["agent", "up"]


def test_sandboxes_get_what_namespaces_need_and_no_more() -> None:
    for pod in pods():
        assert pod["spec"]["hostUsers"] is False, "the API refuses an unmasked /proc without it"
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["spec"]["containers"]
        context = container["securityContext"]
        assert context["procMount"] == "Unmasked"
        assert context["seccompProfile"] == {"type": "Unconfined"}
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in context


def test_agents_find_the_head_through_its_service() -> None:
    daemon, service, head = resources()
    agent, up = containers()
    host, port = next(w for w in agent["args"] if w.startswith("--join=")).split("=")[1].split(":")
    assert host == service["metadata"]["name"] == head["spec"]["serviceName"]
    served = {one["name"]: one["port"] for one in service["spec"]["ports"]}
    assert served == {one["name"]: one["containerPort"] for one in up["ports"]}
    assert served == {"http": 7410, "agents": int(port)}
    assert {f"--port={served['http']}", f"--agents=0.0.0.0:{port}"} <= set(up["args"])
    assert service["spec"]["selector"] == head["spec"]["template"]["metadata"]["labels"]
    for one in (daemon, head):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"] == labels


def test_tokens_come_from_secrets() -> None:
    secret = {
        one["name"]
        for container in containers()
        for one in container["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }
    assert secret == {"ARTANGRAM_TOKEN", "ARTANGRAM_JOIN_TOKEN", "ARTANGRAM_FINGERPRINT"}


def ray_pods() -> list[dict[str, Any]]:
    """The pods of the KubeRay variant, as the API would get them."""
    spec = yaml.safe_load(KUBERAY.read_text())["spec"]
    templates = [spec["headGroupSpec"]["template"]]
    templates += [group["template"] for group in spec["workerGroupSpecs"]]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
    return [{**head, **template} for template in templates]


def test_the_kuberay_variant_has_the_fields_of_its_definition() -> None:
    cluster = yaml.safe_load(KUBERAY.read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert set(spec) <= {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert set(spec["headGroupSpec"]) == {"rayStartParams", "template"}
    for group in spec["workerGroupSpecs"]:
        sizes = {"replicas", "minReplicas", "maxReplicas"}
        assert set(group) == {"groupName", "rayStartParams", "template"} | sizes
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


@pytest.mark.parametrize("number", range(2))
def test_pods_of_kuberay_follow_the_schema_of_the_api(number: int) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(ray_pods()[number], KUBERNETES, strict=True)


def test_the_head_beside_rays_gets_options_that_exist() -> None:
    (head,) = (one for one in ray_pods()[0]["spec"]["containers"] if one["name"] == "artangram")
    assert head["command"] == ["artangram", "up"]
    assert {word.partition("=")[0] for word in head["args"]} <= options("up")


def test_the_slurm_script_gives_options_that_exist() -> None:
    text = (DEPLOY / "slurm" / "artangram.sbatch").read_text().replace("\\\n", " ")
    found = re.findall(r"^\s*artangram (up|agent) (.*)$", text, re.MULTILINE)
    found += re.findall(r"srun .* artangram (agent) (.*)$", text, re.MULTILINE)
    assert {verb for verb, _ in found} == {"up", "agent"}
    for verb, words in found:
        assert set(re.findall(r"--[a-z-]+", words)) <= options(verb), verb
