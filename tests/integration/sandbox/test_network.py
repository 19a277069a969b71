"""What a sandbox reaches through its proxy, and what no trick makes it reach."""

import asyncio
import io
import json
import socket
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.orchestrator.connect import connect
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import local
from artangram.orchestrator.server import serving
from artangram.orchestrator.trajectory import TrajectoryHandle
from artangram.sandbox import IsolationLevel
from artangram.sandbox.namespace import proxy as proxying
from artangram.sandbox.namespace.proxy import SandboxProxy
from artangram.sandbox.network import NetworkPolicy
from artangram.sandbox.probe import probe

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(probe().level < IsolationLevel.CGROUPS, reason="a proxy needs root"),
]

NEAR = "127.0.0.2"
"""Another loopback address than the one that programs never ask a proxy for."""
ASK = """
import json, socket, sys
def asked(request):
    with socket.create_connection(("127.0.0.1", 3128), 10) as sock:
        sock.sendall(request.encode())
        return sock.recv(4096).decode()
print(json.dumps([asked(request) for request in json.loads(sys.argv[1])]))
"""


def a_wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as wheel:
        wheel.writestr("tinypackage.py", "ANSWER = 42\n")
        about = "tinypackage-1.0.dist-info/"
        metadata = "Metadata-Version: 2.1\nName: tinypackage\nVersion: 1.0\n"
        wheel.writestr(about + "METADATA", metadata)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(about + "WHEEL", tags)
        names = ("tinypackage.py", about + "METADATA", about + "WHEEL", about + "RECORD")
        wheel.writestr(about + "RECORD", "".join(f"{name},,\n" for name in names))
    return made.getvalue()


@asynccontextmanager
async def an_index(host: str, *, moved_to: str = "") -> AsyncIterator[int]:
    """A package index; `/moved` leads elsewhere."""
    wheel, name = a_wheel(), "tinypackage-1.0-py3-none-any.whl"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        status, body, more = "200 OK", f'<a href="/{name}">{name}</a>'.encode(), ""
        if path.endswith(name):
            body = wheel
        elif path == "/moved":
            status, more = "302 Found", f"Location: {moved_to}\r\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{more}"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def asked(t: TrajectoryHandle, *requests: str) -> list[str]:
    """What the proxy answers to each."""
    result = await t.run(["python3", "-c", ASK, json.dumps(requests)], timeout_s=60)
    assert result.ok, result.stderr
    answers: list[str] = json.loads(result.stdout)
    return answers


def connect_to(authority: str) -> str:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"


async def test_pip_installs_through_the_allow_list_and_nothing_else_answers() -> None:
    async with (
        an_index("127.0.0.1") as secret,
        an_index(NEAR, moved_to=f"http://127.0.0.1:{secret}/") as port,
    ):
        here = f"{NEAR}:{port}"
        async with (
            local(private_addresses=[here]) as client,
            client.trajectory(memory_mb=512, network=[here]) as t,
        ):
            pip = f"{sys.executable} -m pip --disable-pip-version-check install --no-cache-dir"
            index = f"--index-url http://{here}/simple --trusted-host {NEAR}"
            command = f"{pip} {index} --target lib tinypackage && PYTHONPATH=lib python3 -c"
            result = await t.run(
                ["sh", "-c", f"{command} 'import tinypackage as t; print(t.ANSWER)'"]
            )
            assert result.stdout.endswith("42\n"), result.stderr
            others = [f"127.0.0.1:{secret}", "example.org:443", "169.254.169.254:80", f"{NEAR}:1"]
            denied = await asked(t, *map(connect_to, others))
            assert [one.split()[1] for one in denied] == ["403"] * len(others)
            follow = f"curl -sL --noproxy '' http://{here}/moved"
            assert "not allowed" in (await t.run(["sh", "-c", follow])).stdout
            direct = await t.run(["curl", "-s", "--noproxy", "*", f"http://{here}/"])
            assert not direct.ok


async def test_no_form_of_an_address_leads_to_the_machine() -> None:
    async with an_index("127.0.0.1") as port, local() as client:
        hosts = [
            "127.0.0.1", "localhost", "localhost.", "127.1", "2130706433", "0x7f000001",
            "0177.0.0.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254", "[fd00:ec2::254]",
            "[fe80::1]", "100.100.100.200", "168.63.129.16", "10.0.0.1", "192.168.0.1", "224.0.0.1",
            socket.gethostname(),
        ]  # fmt: skip
        async with client.trajectory(memory_mb=128, network=True) as t:
            requests = [connect_to(f"{host}:{port}") for host in hosts]
            requests += [f"GET http://{host}:{port}/ HTTP/1.1\r\n\r\n" for host in hosts]
            requests += [
                f"GET http://example.org@127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
                f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
            ]
            for request, answer in zip(requests, await asked(t, *requests), strict=True):
                assert answer.startswith("HTTP/1.1 403"), (request, answer)


@pytest.mark.parametrize(
    "request_text",
    ["", "nonsense\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "CONNECT a HTTP/1.1\r\n\r\n",
     "CONNECT a:99999 HTTP/1.1\r\n\r\n", "GET ftp://a/ HTTP/1.1\r\n\r\n",
     "GET http://[/ HTTP/1.1\r\n\r\n"],
)  # fmt: skip
async def test_nonsense_is_answered_or_left(request_text: str) -> None:
    ours, theirs = socket.socketpair()
    proxy = SandboxProxy(True, private=())
    reader, writer = await asyncio.open_connection(sock=ours)
    theirs_reader, theirs_writer = await asyncio.open_connection(sock=theirs)
    await proxy._on_connection(theirs_reader, theirs_writer)
    writer.write(request_text.encode())
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    assert not answer or answer.startswith(b"HTTP/1.1 400"), answer
    writer.close()
    await proxy.close()


async def test_a_name_that_changes_its_address_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    reached: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async def open_connection(address: str, port: int) -> None:
        reached.append(address)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(proxying, "_addresses", resolve)
    monkeypatch.setattr(proxying.asyncio, "open_connection", open_connection)
    proxy = SandboxProxy(("evil.test",), private=())
    for status in ("502", "403"):
        with pytest.raises(proxying.ProxyDenied) as denied:
            await proxy._connected("evil.test", 443)
        assert denied.value.status.startswith(status)
    assert reached == ["93.184.216.34"]
    assert answers == []


async def test_the_operator_forbids_what_callers_ask_for() -> None:
    policy = NetworkPolicy(allow=("pypi.org", "*.pythonhosted.org:443"))
    for wanted in (False, ("pypi.org",), ("pypi.org:443",), ("files.pythonhosted.org:443",)):
        policy.check(wanted)
    for refused in (True, "host", ("pypi.org:22",), ("evil.org",), ("pythonhosted.org:443",)):
        with pytest.raises(BadInput, match="operator"):
            policy.check(refused)
    with pytest.raises(BadInput, match="operator"):
        NetworkPolicy().check("host")
    async with local() as behind:
        assert isinstance(behind.backend, Embedded)
        closed = NetworkPolicy(allow=False)
        async with (
            serving(behind.backend.orchestrator, token="t", network=closed) as url,
            connect(url, token="t") as client,
        ):
            with pytest.raises(BadInput, match="operator"):
                await client.trajectory(network=["pypi.org"]).open()


@pytest.mark.parametrize("wrong", ["a b", "http://a/", "a:0", "a:b", "", "*", "a:99999"])
async def test_what_is_not_a_host_is_refused(wrong: str) -> None:
    async with local() as client:
        with pytest.raises(BadInput, match="network"):
            client.trajectory(network=[wrong])


@pytest_asyncio.fixture(params=["embedded", "http"], loop_scope="module")
async def t(request: pytest.FixtureRequest) -> AsyncIterator[TrajectoryHandle]:
    async with local() as client:
        assert isinstance(client.backend, Embedded)
        async with (
            serving(client.backend.orchestrator, token="t") as url,
            connect(url, token="t") as remote,
            (remote if request.param == "http" else client).trajectory(memory_mb=256) as t,
        ):
            yield t


async def test_a_server_inside_has_a_url_outside(t: TrajectoryHandle) -> None:
    await t.write("large", bytes(range(256)) * 4096)
    server = await t.start(["python3", "-u", "-m", "http.server", "8000"])
    while b"Serving" not in (await server.read()).data:  # type: ignore[union-attr]
        pass
    async with await t.expose(8000) as exposed:
        host, port = exposed.url.removeprefix("http://").split(":")

        async def fetched(path: str) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            body = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return body.partition(b"\r\n\r\n")[2]

        found = await asyncio.gather(*(fetched("/large") for _ in range(4)))
        assert found == [bytes(range(256)) * 4096] * 4
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection(host, int(port))
    async with await t.expose(1) as nothing:
        _, port = nothing.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
    with pytest.raises(BadInput, match="port"):
        await t.expose(0)
