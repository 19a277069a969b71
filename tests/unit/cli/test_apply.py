"""`artangram apply` against a service that is there."""

import asyncio
from pathlib import Path

from msgspec import structs

from artangram.config.clusterfile import read_cluster
from artangram.config.reconfigurable import fixed_of, reconfiguration_of
from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import FunctionsSpec, JobLimits, QuotaSpec
from artangram.orchestrator.server import serving
from artangram.testing.fakes import a_setup, fake_cluster

TOKEN = "a token of this test"
FILE = """
pools:
  cpu: {kind: cpu, cores: 2}
  functions: {kind: functions, ceiling: 2}
  search: {kind: quota, limit: 5}
apis: {search: {base_url: "http://127.0.0.1:1"}}
jobs: {a: {share: 2}}
"""


def a_file(path: Path, text: str = FILE) -> str:
    path.write_text(text)
    return str(path)


async def test_a_changed_file_is_applied_and_what_cannot_change_is_named_with_its_line(
    run, tmp_path
):
    setup = a_setup()
    pools = {
        **setup.cluster.pools,
        Resource("functions"): FunctionsSpec(ceiling=2),
        Resource("search"): QuotaSpec(limit=5),
    }
    setup = structs.replace(setup, cluster=structs.replace(setup.cluster, pools=pools))
    async with (
        fake_cluster(setup) as behind,
        serving(behind.orchestrator, token=TOKEN) as url,
    ):
        behind.orchestrator.described = fixed_of(read_cluster(a_file(tmp_path / "c.yaml")))
        reach = ["--url", url, "--token", TOKEN]
        changed = FILE.replace("share: 2", "share: 4, max_trajectories: 3")
        changed = changed.replace("limit: 5", "limit: 9").replace("ceiling: 2", "ceiling: 3")
        file = a_file(tmp_path / "c.yaml", changed)
        told = await asyncio.to_thread(run, "apply", file, *reach)
        assert (told.code, told.err) == (0, "")
        assert told.out.endswith("c.yaml: 1 jobs, 1 APIs and 1 ceilings.\n")
        now = behind.orchestrator.cluster
        assert now.shares == {JobId("a"): 4.0}
        assert now.limits == {JobId("a"): JobLimits(max_trajectories=3)}
        assert now.pools[Resource("functions")] == FunctionsSpec(ceiling=3)
        assert now.pools[Resource("search")] == QuotaSpec(limit=9)

        file = a_file(tmp_path / "c.yaml", changed.replace("cores: 2", "cores: 4"))
        told = await asyncio.to_thread(run, "apply", file, *reach)
        assert told.code == 2
        assert "c.yaml:3: pools.cpu.cores: is 2 and cannot become 4 while" in told.err
        file = a_file(tmp_path / "c.yaml", FILE.replace("127.0.0.1:1", "127.0.0.1:2"))
        told = await asyncio.to_thread(run, "apply", file, *reach)
        assert "apis.search: is another one (" in told.err
        told = await asyncio.to_thread(run, "apply", file, *reach, "--policy", "fcfs")
        assert told.code == 2
        assert behind.orchestrator.cluster == now


def test_what_the_file_does_not_say_stays_as_it_is(tmp_path):
    wanted = reconfiguration_of(read_cluster(a_file(tmp_path / "c.yaml", "policy: fcfs\n")))
    assert (wanted.ceilings, wanted.apis, wanted.shares) == ({}, {}, {})
    assert wanted.fixed == {"policy": "fcfs", "sync": "True"}
