"""The Grafana dashboard asks for metrics that a service has, by labels that they have."""

import json
import re
from pathlib import Path

import aiohttp

from artangram.orchestrator.server import serving
from artangram.testing.fakes import fake_cluster

PAGE = Path(__file__).parents[2] / "deploy" / "grafana" / "artangram.json"
ONLY_WITH_CALLEES = {"artangram_service_copies", "artangram_calls_queued"}


async def test_every_metric_that_it_draws_exists() -> None:
    async with fake_cluster() as cluster, serving(cluster.orchestrator, token="t") as url:
        async with cluster.trajectory() as t:
            await t.run(["true"])
        headers = {"Authorization": "Bearer t"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{url}/metrics") as answer,
        ):
            text = await answer.text()
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        name = re.sub(r"^# (HELP|TYPE) ", "", line).partition(" ")[0].partition("{")[0]
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', line))
    panels = json.loads(PAGE.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) >= 10
    for query in queries:
        for name in re.findall(r"artangram_\w+", query):
            assert name in found, query
            by = re.search(r"by \(([\w, ]+)\)", query)
            if by is not None and name not in ONLY_WITH_CALLEES:
                assert set(by[1].split(", ")) <= found[name] | {"le"}, query
