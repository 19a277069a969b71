"""Where a trajectory works, its home, its variables and its user: real sandboxes, both ways."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import artangram.sync
from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import local
from artangram.orchestrator.server import serving
from artangram.sandbox import DirectoryImage, IsolationLevel, NotCapable, PlainProvider
from artangram.sandbox.probe import probe
from artangram.sandbox.user import SandboxUser
from artangram.testing.fakes import fake_cluster
from integration.sandbox.small_root import fill

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="no namespaces on this machine"
    ),
]

WHERE = "pwd; echo $HOME $USER $A; ls -ld . | cut -d' ' -f3"


@asynccontextmanager
async def both_ways(how: str) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(local())
        if how == "http":
            assert isinstance(client.backend, Embedded)
            service = serving(client.backend.orchestrator, token="t")
            url = await stack.enter_async_context(service)
            client = await stack.enter_async_context(connect(url, token="t"))
        yield client


@pytest_asyncio.fixture(params=["embedded", "http"], scope="module", loop_scope="module")
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with both_ways(request.param) as client:
        yield client


async def test_every_way_to_run_starts_where_the_trajectory_works(client: Client) -> None:
    async with client.trajectory(
        memory_mb=128, workdir="/testbed/repo", home="/home/me", user="me", environ={"A": "1"}
    ) as t:
        expected = "/testbed/repo\n/home/me me 1\nme\n"
        assert (await t.run(["sh", "-c", WHERE])).stdout == expected
        async with client.attach(t.id) as other:
            assert (await other.run(["sh", "-c", WHERE])).stdout == expected
        process = await t.start(["sh", "-c", WHERE])
        assert (await process.wait()).stdout == expected
        async with await t.shell() as shell:
            assert (await shell.run(WHERE)).stdout == expected
        own = await t.run(["sh", "-c", "pwd; echo $A"], cwd="/tmp", environ={"A": "2"})
        assert own.stdout == "/tmp\n2\n"
        assert (await t.run(["pwd"], cwd="..")).stdout == "/testbed\n"
        assert (await t.run(["python", "-c", "print(6 * 7)"])).stdout == "42\n"


async def test_files_are_relative_to_where_the_trajectory_works(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "b").write_text("from here")
    async with client.trajectory(memory_mb=128, workdir="/home/me") as t:
        await t.write("a", "1")
        await t.upload(tmp_path / "b")
        assert (await t.run(["cat", "/home/me/a", "b"])).stdout == "1from here"
        assert await t.read("/home/me/b") == b"from here"
        await t.download(".", tmp_path / "back")
    assert (tmp_path / "back" / "a").read_text() == "1"


async def test_root_is_a_number_without_rights() -> None:
    async with local() as client, client.trajectory(user="root", home="/root") as t:
        about = await t.run(["sh", "-c", "id -u; id -un; echo $HOME; touch x && stat -c %U x"])
        assert about.stdout == "0\nroot\n/root\nroot\n"
        caps = await t.run(["sh", "-c", "grep ^Cap /proc/self/status | cut -f2 | sort -u"])
        assert caps.stdout.split() == ["0" * 16]
        attempts = (
            "mount -t tmpfs x /tmp",
            "chown 12 x",
            "hostname other",
            "cat /proc/1/environ",
            "touch /usr/bin/mine",
            "unshare -U true",
            "cat /proc/1/root/etc/passwd",
        )
        for attempt in attempts:
            assert not (await t.run(["sh", "-c", attempt])).ok, attempt
        await t.run(["sh", "-c", "kill -9 1"])
        assert (await t.run(["true"])).ok


async def test_root_owns_what_root_owns_in_an_image(tmp_path: Path) -> None:
    fill(tmp_path, ["sh", "stat", "touch"])
    image = DirectoryImage(path=str(tmp_path))
    async with local() as client, client.trajectory(user="root", source=image) as t:
        found = await t.run(["sh", "-c", "touch /bin/mine && stat -c %u /bin/mine /bin/sh"])
        assert found.stdout == "0\n0\n"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": "/a/../b"}, "workdir"),
        ({"home": "/dev/shm"}, "home"),
        ({"home": "/a:b"}, "home"),
        ({"user": "Not A Name"}, "user"),
        ({"environ": {"A=B": "1"}}, "environ"),
    ],
)
async def test_what_is_no_directory_or_name_is_refused(given: dict[str, Any], field: str) -> None:
    async with fake_cluster() as client:
        with pytest.raises(BadInput, match=field):
            client.trajectory(**given)


async def test_plain_processes_have_the_machines_user(tmp_path: Path) -> None:
    provider = await PlainProvider.open(level=IsolationLevel.PROCESS, state_dir=tmp_path)
    try:
        with pytest.raises(NotCapable, match="user"):
            await provider.create(artangram.HostImage(), user=SandboxUser(home="/home/me"))
    finally:
        await provider.close()


def _without_async() -> str:
    with (
        artangram.sync.local() as client,
        client.trajectory(memory_mb=128, workdir="/testbed", environ={"A": "1"}) as t,
    ):
        return t.run(["sh", "-c", "pwd; echo $A"]).stdout


async def test_code_that_is_not_async_has_the_same() -> None:
    assert await asyncio.to_thread(_without_async) == "/testbed\n1\n"
