"""Where an action waits, and why it is refused when it could never run."""

import pytest
from builders import a_cluster, a_cpu, a_gpu

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import FunctionsSpec, QuotaSpec, ServiceSpec, node_ids
from artangram.core.scheduling.forms import MOST_KNOWN, Forms
from artangram.core.scheduling.needs import parse_needs
from artangram.core.scheduling.policies.base import Form

GPU = Resource("gpu")
CLUSTER = a_cluster(
    cpu=a_cpu(nodes=2, cores=8),
    arm=a_cpu(cores=4),
    gpu=a_gpu(devices=8, memory_mb=100),
    search=QuotaSpec(concurrency=6, limit=4),
    free=QuotaSpec(),
    functions=FunctionsSpec(ceiling=3),
    services={
        "judge": ServiceSpec(pool=GPU, weights_mb=200, degrees=(1, 2, 4)),
        "other": ServiceSpec(pool=Resource("cpu"), weights_mb=1),
    },
)


def form(raw: dict[str, object], **fields: object) -> Form:
    return Forms(CLUSTER).of(parse_needs(raw, **fields))


def refusal(raw: dict[str, object], **fields: object) -> str:
    with pytest.raises(BadInput) as caught:
        form(raw, **fields)
    return str(caught.value)


def test_no_more_forms_are_remembered_than_are_of_use():
    forms = Forms(CLUSTER)
    for n in range(MOST_KNOWN + 10):
        speedup = {"amdahl": n / (2 * MOST_KNOWN)}
        forms.of(parse_needs({"cpu": {"min": 1, "max": 2}}, elastic="cpu", speedup=speedup))
        assert len(forms) <= MOST_KNOWN


def test_a_pool_without_services_says_so():
    with pytest.raises(BadInput, match="not a service of gpu; describe it under services"):
        Forms(a_cluster(gpu=a_gpu())).of(parse_needs({"gpu": 1}, service="judge"))


def test_equal_needs_share_one_form():
    forms = Forms(CLUSTER)
    assert forms.of(parse_needs({"cpu": 1})) is forms.of(parse_needs({"cpu": 1}))


def test_an_action_waits_for_its_elastic_resource():
    found = form({"cpu": 2, "search": {"min": 1, "max": 3}}, elastic="search")
    assert (found.resource, found.amounts, found.is_elastic) == ("search", (1, 2, 3), True)
    assert found.secondary == (("cpu", 2),)


def test_without_an_elastic_one_it_waits_for_the_hardest_to_come_by():
    found = form(
        {"search": 1, "functions": 1, "cpu": 2, "gpu": {"choices": [2, 4]}}, service="judge"
    )
    assert (found.resource, found.is_elastic) == ("gpu", False)
    assert found.secondary == (("cpu", 2), ("functions", 1), ("search", 1))
    assert form({"search": 1, "functions": 1}).resource == "functions"
    assert form({"search": 1, "free": 1}).resource == "free"


def test_amounts_that_no_node_has_are_left_out():
    assert form({"cpu": {"min": 6, "max": 32}}, elastic="cpu").amounts == (6, 7, 8)
    assert not form({"cpu": {"choices": [8, 16]}}, elastic="cpu").is_elastic


def test_degrees_are_those_of_the_service_that_fit_a_device():
    found = form({"gpu": {"min": 1, "max": 8}}, elastic="gpu", service="judge")
    assert (found.amounts, found.service) == ((2, 4), "judge")


def test_an_unlimited_quota_refuses_nothing():
    assert form({"free": 100_000}).amounts == (100_000,)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            {"disk": 1},
            "needs.disk: no such resource here; use one of: arm, cpu, free, functions, gpu, search",
        ),
        (
            {"cpu": 9},
            "needs.cpu: asks for at least 9, which can never fit: 8 is all one can have; "
            "ask for 8 or less, or enlarge the pool",
        ),
        ({"search": 5}, "needs.search: asks for at least 5, which can never fit: 4 is all"),
        ({"functions": 4}, "needs.functions: asks for at least 4, which can never fit: 3 is all"),
        ({"cpu": 1, "arm": 1}, "needs: cores of cpu and arm; an action runs on one node"),
        ({"gpu": 1}, "service: None is not a service of gpu; use: judge"),
    ],
)
def test_what_can_never_run_is_refused_with_the_reason(raw, said):
    assert refusal(raw).startswith(said)


def test_a_service_of_another_pool_is_refused():
    said = refusal({"gpu": 1}, service="other")
    assert said == "service: 'other' is not a service of gpu; use: judge"


def test_a_degree_that_does_not_fit_a_device_is_refused():
    assert refusal({"gpu": {"choices": [1, 3]}}, service="judge") == (
        "needs.gpu: judge cannot run on [1, 3] devices of 100 MB; "
        "ask for one of its degrees (1, 2, 4) that fits a device's memory"
    )


def test_nodes_are_named_after_their_pool():
    assert node_ids(GPU, 2) == ["gpu-0", "gpu-1"]
