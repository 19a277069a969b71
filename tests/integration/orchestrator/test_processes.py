"""Processes beside commands, in real sandboxes, in this process and over HTTP."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.connect import connect
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import local
from artangram.orchestrator.process import ProcessHandle
from artangram.orchestrator.server import serving
from artangram.orchestrator.shell import ShellEnded
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe

pytestmark = [
    pytest.mark.skipif(
        probe().level < IsolationLevel.NAMESPACES, reason="no namespaces on this machine"
    ),
]

PATIENCE_S = 20.0
SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"from " + self.path.encode())
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
"""
CLIENT = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8000/beside").read().decode())
"""


@asynccontextmanager
async def a_client(how: str, *, cores: int | None = None) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(local(cores=cores))
        if how == "http":
            assert isinstance(client.backend, Embedded)
            service = serving(client.backend.orchestrator, token="t")
            url = await stack.enter_async_context(service)
            client = await stack.enter_async_context(connect(url, token="t"))
        yield client


@pytest_asyncio.fixture(params=["embedded", "http"])
async def t(request: pytest.FixtureRequest) -> AsyncIterator[TrajectoryHandle]:
    async with a_client(request.param) as client, client.trajectory(memory_mb=256) as trajectory:
        yield trajectory


async def read_until(process: ProcessHandle, text: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(PATIENCE_S):
        while text not in seen:
            piece = await process.read()
            assert piece is not None, seen
            seen += piece.data
    return seen


async def test_a_server_in_the_background_answers_a_client_beside_it(t: TrajectoryHandle) -> None:
    server = await t.start(["python3", "-c", SERVER])
    await read_until(server, b"listening")
    for _ in range(2):
        beside = await t.run(["python3", "-c", CLIENT], timeout_s=PATIENCE_S)
        assert beside.stdout == "from /beside\n", beside
    await server.signal(signal.SIGTERM)
    ended = await server.wait()
    assert ended.command is not None
    assert (ended.outcome, ended.command.signal) == (Outcome.FAILED, signal.SIGTERM)
    gone = await t.run(["python3", "-c", CLIENT], timeout_s=PATIENCE_S)
    assert "Connection refused" in gone.stderr


async def test_a_repl_is_driven_by_its_stdin(t: TrajectoryHandle) -> None:
    repl = await t.start(["python3", "-i", "-q", "-u"])
    await repl.write("x = 6\n")
    await repl.write("print('is', x * 7)\n")
    await read_until(repl, b"is 42\n")
    await repl.write("import sys; sys.exit(x)\n")
    assert (await repl.wait()).exit_code == 6
    with pytest.raises(OSError, match=r"closed|ended"):
        await repl.write("too late")


async def test_a_terminal_has_a_size_and_interrupts(t: TrajectoryHandle) -> None:
    shell = await t.start(["sh"], terminal=(30, 100))
    await shell.write("stty size; test -t 1 && tty\n")
    assert b"/dev/pts/" in await read_until(shell, b"/dev/pts/")
    await shell.resize(40, 120)
    await t.write("trap.sh", "trap 'echo caught; exit' INT; stty size; while :; do sleep 0.1; done")
    await shell.write("sh trap.sh\n")
    await read_until(shell, b"40 120")
    await shell.write(b"\x03")
    await read_until(shell, b"caught")
    await shell.write("echo still he''re\n")
    await read_until(shell, b"still here")
    await shell.close_stdin()
    assert (await shell.wait()).outcome in (Outcome.SUCCEEDED, Outcome.FAILED)


async def test_a_time_limit_ends_its_own_tree_only(t: TrajectoryHandle) -> None:
    cat = await t.start(["cat"])
    tree = "(setsid sleep 71 &); setsid sh -c 'sleep 72 & sleep 73' & sleep 74"
    late = await t.start(["sh", "-c", tree], timeout_s=0.3)
    assert (await late.wait()).outcome is Outcome.TIMED_OUT
    left = await t.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "sleep 7" not in left.stdout
    await cat.write("alive")
    assert b"alive" in await read_until(cat, b"alive")
    timed_out = await t.run(["sleep", "75"], timeout_s=0.2)
    assert timed_out.outcome is Outcome.TIMED_OUT
    await cat.write(" still")
    await cat.close_stdin()
    ended = await cat.wait()
    assert (ended.exit_code, ended.stdout) == (0, " still")


async def test_input_and_output_of_any_size_arrive_whole(t: TrajectoryHandle) -> None:
    sums = await t.start(["sha256sum"], lossless=True)
    size = 5 << 20
    await sums.write(b"x" * size)
    await sums.close_stdin()
    told = (await sums.wait()).stdout.split()[0]
    whole = await t.run(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x | sha256sum"])
    assert told == whole.stdout.split()[0]
    zeros = await t.start(["head", "-c", str(size), "/dev/zero"], lossless=True)
    assert sum([len(piece.data) async for piece in zeros]) == size
    assert (await zeros.wait()).exit_code == 0


async def test_a_log_that_is_not_read_stops_no_server(t: TrajectoryHandle) -> None:
    loud = await t.start(["sh", "-c", "head -c 8000000 /dev/zero; echo done"], output_bytes=1000)
    ended = await loud.wait()
    assert ended.command is not None
    assert ended.stdout.endswith("done\n")
    assert len(ended.command.stdout) == 1000
    assert ended.command.truncated_bytes == 8000005 - 1000


async def test_a_program_that_does_not_exist_is_told_apart(t: TrajectoryHandle) -> None:
    missing = await (await t.start(["no-such-program"])).wait()
    assert (missing.exit_code, missing.start_error) == (127, "No such file or directory")


async def test_what_is_not_a_process_is_refused(t: TrajectoryHandle) -> None:
    with pytest.raises(BadInput, match="argv"):
        await t.start("sleep 1")
    with pytest.raises(BadInput, match="terminal"):
        await t.start(["sh"], terminal=(0, 80))
    cat = await t.start(["cat"])
    with pytest.raises(BadInput, match="signal"):
        await cat.signal(99)


@pytest.mark.parametrize("how", ["embedded", "http"])
async def test_processes_end_with_their_trajectory(how: str) -> None:
    async with a_client(how) as client:
        async with client.trajectory(memory_mb=64) as t:
            sleeper = await t.start(["sleep", "1000"])
            status = await client.status()
            assert (status.running, status.nodes[0].running) == (1, 1)
        assert (await sleeper.wait()).outcome is Outcome.CANCELLED
        assert (await client.status()).running == 0


async def test_one_core_is_enough_for_a_server_and_its_client() -> None:
    """A process that runs for long stands back for a command that is short."""
    async with a_client("embedded", cores=1) as client, client.trajectory(memory_mb=128) as t:
        cat = await t.start(["cat"])
        async with asyncio.timeout(PATIENCE_S):
            assert (await t.run(["echo", "beside"])).stdout == "beside\n"
        await cat.kill()
        assert (await cat.wait()).command is not None


async def test_leaving_a_process_unread_holds_up_nothing(t: TrajectoryHandle) -> None:
    quiet = await t.start(["sh", "-c", "while :; do echo x; done"], lossless=True)
    started = await asyncio.gather(*[t.start(["sh", "-c", "read a; echo $a"]) for _ in range(4)])
    for number, one in enumerate(started):
        await one.write(f"{number}\n")
        assert (await one.wait()).stdout == f"{number}\n"
    await quiet.kill()


async def test_a_shell_keeps_its_directory_and_variables(t: TrajectoryHandle) -> None:
    async with await t.shell() as shell:
        made = await shell.run("mkdir -p x && cd x && export A=1; f() { echo from f; }")
        assert (made.exit_code, made.stdout, made.stderr) == (0, "", "")
        found = await shell.run("pwd; echo $A; f; echo oops >&2; false")
        assert (found.stdout, found.stderr) == ("/work/x\n1\nfrom f\n", "oops\n")
        assert (found.exit_code, found.ok) == (1, False)
        assert (await shell.run("printf 'no newline'")).stdout == "no newline"
        assert (await shell.run("cat; echo after")).stdout == "after\n"
        broken = await shell.run("if true; then echo x")
        assert "unexpected end of file" in broken.stderr
        assert broken.exit_code != 0
        assert (await shell.run("exec >/dev/null; echo lost")).stdout == ""
        assert (await shell.run("echo told >&2")).stderr == "told\n"


async def test_a_shell_prints_much_and_runs_in_the_background(t: TrajectoryHandle) -> None:
    async with await t.shell() as shell:
        much = await shell.run("head -c 3000000 /dev/zero | tr '\\0' x")
        assert len(much.stdout) == 3000000
        assert (await shell.run("sleep 300 & echo $!")).ok
        assert (await shell.run("jobs | wc -l")).stdout.strip() == "1"
        assert "VERSION" in (await shell.run("cat /etc/os-release")).stdout


async def test_the_end_of_a_shell_is_told(t: TrajectoryHandle) -> None:
    shell = await t.shell()
    last = await shell.run("echo bye; exit 7")
    assert (last.exit_code, last.stdout) == (7, "bye\n")
    with pytest.raises(ShellEnded, match="exit code 7"):
        await shell.run("true")
    slow = await t.shell()
    with pytest.raises(TimeoutError):
        await slow.run("sleep 100", timeout_s=0.2)
    with pytest.raises(ShellEnded, match=r"longer than 0\.2 s"):
        await slow.run("true")
    assert (await t.run(["echo", "fine"])).stdout == "fine\n"


async def test_a_command_cannot_forge_the_end_of_another(t: TrajectoryHandle) -> None:
    async with await t.shell() as shell:
        forged = "printf '\\0%032d0\\n' 0; printf '\\0%032d\\n' 0 >&2; echo real; false"
        result = await shell.run(forged)
        assert (result.exit_code, "real" in result.stdout) == (1, True)


@pytest.mark.parametrize("how", ["embedded", "http"])
async def test_an_open_trajectory_is_attached_to_by_its_id(how: str) -> None:
    async with a_client(how) as client, client.trajectory(memory_mb=64) as t:
        await t.write("a", "shared")
        async with client.attach(t.id, task="swe") as same:
            result = await same.run(["cat", "a"])
            assert (result.stdout, result.record.kind) == ("shared", "swe/cat")
        assert (await t.run(["true"])).ok
        with pytest.raises(BadInput, match="not open"):
            await client.attach("nowhere").run(["true"])
        await client.attach(t.id).close()
        with pytest.raises(BadInput, match="not open"):
            await t.run(["true"])
