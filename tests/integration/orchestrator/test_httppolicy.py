"""What callers over HTTP cannot do: nothing without the token, nothing to the host with it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from busy_machine import PATIENCE_S
from starlette.routing import Route

from artangram.core.errors import BadInput
from artangram.core.ids import TrajectoryId
from artangram.managers.agent import SandboxSpec
from artangram.orchestrator import server
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.httppolicy import MOST_OUTPUT_BYTES, permit_opening
from artangram.orchestrator.records import Opening
from artangram.orchestrator.server import application, serving
from artangram.orchestrator.tokens import checked_token, kept_token
from artangram.sandbox.protocol import DirectoryImage, HostImage, Snapshot, Source, TarImage
from artangram.testing.fakes import fake_cluster

TOKEN = "a token of this test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def a_service(*images: Path) -> AsyncIterator[tuple[Client, str]]:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token=TOKEN, images=images) as url,
        connect(url, token=TOKEN) as client,
    ):
        yield client, url


async def answer(url: str, path: str, *, method: str = "GET", **options) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, **options) as found,
    ):
        return found.status, await found.text()


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN[:-1]}"}]
)
async def test_every_address_wants_the_token_but_the_description(headers) -> None:
    async with fake_cluster() as behind, serving(behind.orchestrator, token=TOKEN) as url:
        routes = application(behind.orchestrator, token=TOKEN).routes
        asked = {}
        for route in routes:
            assert isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD"}:
                path = route.path.replace("{", "").replace(":path}", "")
                status, _ = await answer(url, path, method=method, headers=headers)
                asked[method, route.path] = status
        assert asked.pop(("GET", "/v1/openapi.json")) == 200
        assert len(asked) > 10
        assert set(asked.values()) == {401}


async def test_an_empty_token_is_refused_and_not_everybodys() -> None:
    async with fake_cluster() as behind:
        with pytest.raises(BadInput, match="every caller would have it"):
            application(behind.orchestrator, token="")


@pytest.mark.parametrize(
    "source",
    [
        DirectoryImage(path="/"),
        DirectoryImage(path="/etc"),
        TarImage(path="/etc/passwd"),
        HostImage(also=("/usr", "/root")),
    ],
)
async def test_no_file_of_the_host_can_be_had_as_an_image(source: Source, tmp_path: Path) -> None:
    async with a_service(tmp_path) as (client, _):
        with pytest.raises(BadInput, match="is not offered to callers over HTTP"):
            await client.trajectory(source=source).__aenter__()
        assert (await client.status()).trajectories == 0


async def test_images_below_an_offered_folder_can_and_no_link_leads_out(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "out").symlink_to("/")
    async with a_service(tmp_path) as (client, _):
        async with client.trajectory(source=DirectoryImage(path=str(tmp_path / "inside"))):
            assert (await client.status()).trajectories == 1
        for path in (tmp_path / "out", tmp_path / "inside" / ".." / "..", Path("inside")):
            with pytest.raises(BadInput, match="not offered"):
                await client.trajectory(source=DirectoryImage(path=str(path))).__aenter__()


async def test_a_snapshot_that_is_not_known_is_refused() -> None:
    async with a_service() as (client, _):
        with pytest.raises(BadInput, match=r"there is no '\.\./\.\./etc'"):
            await client.trajectory(source=Snapshot(name="../../etc")).__aenter__()


async def test_a_request_cannot_make_the_orchestrator_hold_any_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MOST_BODY_BYTES", 1000)
    async with a_service() as (client, _), client.trajectory() as t:
        with pytest.raises(BadInput, match=r"output_bytes: \d+ is above"):
            await t.run(["true"], output_bytes=MOST_OUTPUT_BYTES + 1)
        await t.write("x", b"1" * 1000)
        with pytest.raises(BadInput, match="body: has more than 1000 bytes"):
            await t.write("x", b"1" * 1001)
        assert await t.read("x") == b"1" * 1000


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("", "path: is missing"),
        ("?path=x&max_bytes=-1", "max_bytes: '-1' is not a size"),
        ("?path=x&max_bytes=many", "max_bytes: 'many' is not a size"),
        ("?path=x&max_bytes=99999999999", "max_bytes: '99999999999' is not a size"),
    ],
)
async def test_a_wrong_question_is_told_so(query: str, complaint: str) -> None:
    async with a_service() as (client, url), client.trajectory(id="t"):
        path = f"/v1/trajectories/t/files{query}"
        status, body = await answer(url, path, headers=BEARER)
        assert (status, complaint in body) == (400, True), body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"trajectory": "x", "memory": 64}),
        ("/t/run", {"trajectory": "t", "argv": ["true"], "kind": "x", "timeout": 1}),
        ("/t/stream", {"trajectory": "t", "argv": ["true"], "kind": "x", "timeout": 1}),
    ],
)
async def test_a_field_that_no_request_has_is_told_so(path: str, body: dict[str, object]) -> None:
    async with a_service() as (client, url), client.trajectory(id="t"):
        path = f"/v1/trajectories{path}"
        status, said = await answer(url, path, method="POST", headers=BEARER, json=body)
        unknown = list(body)[-1]
        assert status == 400
        assert f"{unknown}: is not an option of this request; use: " in said


async def test_a_body_of_endless_depth_is_told_so() -> None:
    body = b'{"trajectory": "t", "owner": ' + b"[" * 100_000
    async with a_service() as (_, url):
        path = "/v1/trajectories"
        status, said = await answer(url, path, method="POST", headers=BEARER, data=body)
        assert (status, "body: " in said) == (400, True), said


@pytest.mark.parametrize(
    "name", ["a/b", "x/run", "x/../y", "%2F", "?#&;", "\u2603 'and' \"more\"", " "]
)
async def test_a_trajectory_may_have_any_name_that_an_address_carries(name: str) -> None:
    async with a_service() as (client, _), client.trajectory(id=name) as t:
        await t.write("x", b"1")
        assert (await t.run(["true"])).ok
        assert await t.read("x") == b"1"


@pytest.mark.parametrize("name", [".", "..", "a\nb", "\0"])
async def test_a_name_that_no_address_carries_is_refused(name: str) -> None:
    async with a_service() as (client, _):
        with pytest.raises(BadInput, match=r"cannot be (part|printed)"):
            await client.trajectory(id=name).__aenter__()
        assert (await client.status()).trajectories == 0


async def test_who_hangs_up_in_the_middle_of_a_request_is_no_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with a_service() as (client, url):
        address = urlsplit(url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        head = f"POST /v1/calls HTTP/1.1\r\nHost: x\r\nAuthorization: {BEARER['Authorization']}"
        writer.write(f"{head}\r\nContent-Length: 99\r\n\r\n{{".encode())
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.1)
        assert (await client.status()).queued == 0
    assert "Traceback" not in capfd.readouterr().err


async def test_who_sends_half_a_body_is_told_and_the_connection_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "BODY_SILENCE_S", 0.1)
    async with a_service() as (client, url):
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = f"POST /v1/calls HTTP/1.1\r\nHost: x\r\nAuthorization: {BEARER['Authorization']}"
        writer.write(f"{head}\r\nContent-Length: 99\r\n\r\n{{".encode())
        async with asyncio.timeout(PATIENCE_S):
            said = await reader.read()
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b'"error":"stalled"' in said
        writer.close()
        await writer.wait_closed()
        assert (await client.status()).queued == 0


async def test_an_address_in_use_is_said_and_nothing_hangs() -> None:
    async with fake_cluster() as behind, serving(behind.orchestrator, token=TOKEN) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(BadInput, match=f"127.0.0.1 port {port}: Address already in use"):
            async with serving(behind.orchestrator, token=TOKEN, port=port):
                pass
        assert (await answer(url, "/v1/status", headers=BEARER))[0] == 200


@pytest.mark.parametrize("token", ["two\nlines", "h\xe4\xdflich", " padded ", "nul\0"])
async def test_a_token_that_no_header_carries_is_refused_on_both_sides(token: str) -> None:
    async with fake_cluster() as behind, serving(behind.orchestrator, token=TOKEN) as url:
        with pytest.raises(BadInput, match="token: has characters that no HTTP header can carry"):
            application(behind.orchestrator, token=token)
        with pytest.raises(BadInput, match="token: has characters that no HTTP header can carry"):
            async with connect(url, token=token):
                pass


def test_a_token_that_is_made_can_be_sent(tmp_path: Path) -> None:
    assert checked_token(kept_token(tmp_path)) == kept_token(tmp_path)


def test_the_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    assert kept_token(state) == kept_token(state)
    assert (state.stat().st_mode & 0o777, (state / "token").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )


_NO_ROOM_FOR_A_TOKEN = """
import resource, sys
from pathlib import Path
from artangram.orchestrator.tokens import kept_token

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
kept_token(Path(sys.argv[1]))
"""


def test_a_token_that_could_not_be_written_is_made_the_next_time(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _NO_ROOM_FOR_A_TOKEN, str(tmp_path)]
    assert "OSError" in subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    assert list(tmp_path.iterdir()) == []
    assert checked_token(kept_token(tmp_path))


async def test_what_was_checked_is_what_is_used(tmp_path: Path) -> None:
    (tmp_path / "offered").mkdir()
    (tmp_path / "offered" / "real").mkdir()
    (tmp_path / "offered" / "named").symlink_to("real")
    named, real = (str(tmp_path / "offered" / name) for name in ("named", "real"))
    for asked, used in (
        (DirectoryImage(path=named), DirectoryImage(path=real, links=False)),
        (TarImage(path=named), TarImage(path=real, links=False)),
        (HostImage(also=(named,)), HostImage(also=(real,), links=False)),
        (HostImage(), HostImage()),
    ):
        opening = Opening(trajectory=TrajectoryId("t"), place=SandboxSpec(source=asked))
        permitted = permit_opening(opening, images=[tmp_path / "offered"])
        assert permitted.place.source == used


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nb", "a\x7f", "a\x9bb", "a\u202eb"])
async def test_names_with_control_characters_are_refused(name: str) -> None:
    async with a_service() as (client, _):
        for options in ({"id": name}, {"job": name}, {"task": name}):
            with pytest.raises(BadInput, match="cannot be printed"):
                await client.trajectory(**options).__aenter__()
        async with client.trajectory() as t:
            with pytest.raises(BadInput, match="cannot be printed"):
                await t.run(["true"], kind=name)
            assert (await t.run(["true"], kind="café/测试 1")).ok
