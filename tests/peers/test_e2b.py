"""E2B's client, both kinds, against the front that `up` serves.

Its own tests are in no archive: these say what they check of commands, files and terminals. Left
out are metadata of files and signed URLs, which a sandbox of ours does not keep, and watching.
"""

import asyncio

import pytest
import pytest_asyncio

pytest.importorskip("e2b", reason="`make test-peers` installs it")

from e2b import AsyncSandbox, PtySize, Sandbox
from e2b.exceptions import (
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    NotFoundException,
    SandboxNotRunningException,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import CommandExitException

from artangram.integrations.e2b import e2b_pages
from artangram.orchestrator.local import running
from artangram.orchestrator.server import serving

TOKEN = "a-token-of-the-tests"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.filterwarnings("default")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address():
    async with (
        running(cores=2, memory_mb=6000) as (orchestrator, _),
        serving(orchestrator, token=TOKEN, pages=e2b_pages) as url,
    ):
        yield {"api_url": f"{url}/e2b", "sandbox_url": f"{url}/e2b/envd", "api_key": TOKEN}


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(address):
    made = await AsyncSandbox.create(timeout=300, envs={"GIVEN": "at create"}, **address)
    yield made
    await made.kill()


async def test_a_command_tells_output_and_exit_code(sandbox):
    found = await sandbox.commands.run(
        "pwd; whoami; echo $GIVEN $MORE; echo no >&2", envs={"MORE": "x"}
    )
    assert (found.stdout, found.stderr) == ("/home/user\nuser\nat create x\n", "no\n")
    with pytest.raises(CommandExitException) as raised:
        await sandbox.commands.run("echo why >&2; exit 3")
    assert (raised.value.exit_code, raised.value.stderr) == (3, "why\n")
    assert (await sandbox.commands.run("pwd", cwd="/tmp")).stdout == "/tmp\n"


async def test_output_is_streamed_whatever_its_size(sandbox):
    seen = []
    found = await sandbox.commands.run("seq 200000; printf '\\303\\251'", on_stdout=seen.append)
    assert "".join(seen) == found.stdout
    assert found.stdout.count("\n") == 200_000
    assert found.stdout.endswith("é")


async def test_a_command_that_runs_too_long_is_ended(sandbox):
    with pytest.raises(TimeoutException):
        await sandbox.commands.run("sleep 600", timeout=1)
    await asyncio.sleep(1)
    assert await sandbox.commands.list() == []


async def test_a_command_in_the_background_reads_what_it_is_sent(sandbox):
    running = await sandbox.commands.run("cat; echo over", background=True, stdin=True)
    assert [one.pid for one in await sandbox.commands.list()] == [running.pid]
    await sandbox.commands.send_stdin(running.pid, "one\n")
    other = await sandbox.commands.connect(running.pid)
    await sandbox.commands.send_stdin(running.pid, "two\n")
    await sandbox.commands.close_stdin(running.pid)
    assert (await running.wait()).stdout == "one\ntwo\nover\n"
    assert (await other.wait()).stdout.endswith("two\nover\n")


async def test_a_command_is_killed_once(sandbox):
    running = await sandbox.commands.run("sleep 600", background=True)
    assert await running.kill()
    with pytest.raises(CommandExitException):
        await running.wait()
    assert not await sandbox.commands.kill(running.pid)
    with pytest.raises(NotFoundException):
        await sandbox.commands.connect(running.pid)


async def test_a_command_outlives_the_client_that_started_it(sandbox):
    running = await sandbox.commands.run("sleep 2; echo late > /tmp/late", background=True)
    await running.disconnect()
    await asyncio.sleep(4)
    assert await sandbox.files.read("/tmp/late") == "late\n"


async def test_files_are_written_read_listed_moved_and_removed(sandbox):
    files = sandbox.files
    written = await files.write("deep/er/a.txt", "text")
    assert written.path == "/home/user/deep/er/a.txt"
    await files.write("deep/b.bin", bytes(range(256)))
    assert await files.read("deep/b.bin", format="bytes") == bytes(range(256))
    assert [one.name for one in await files.list("deep")] == ["b.bin", "er"]
    assert [one.name for one in await files.list("deep", depth=2)] == ["b.bin", "er", "a.txt"]
    moved = await files.rename("deep/er/a.txt", "new/place.txt")
    assert moved.path == "/home/user/new/place.txt"
    assert await files.exists("new/place.txt")
    assert not await files.exists("deep/er/a.txt")
    info = await files.get_info("new/place.txt")
    assert (info.size, info.permissions, info.owner) == (4, "-rw-r--r--", "user")
    await files.remove("deep")
    assert not await files.exists("deep")


async def test_directories_and_links(sandbox):
    files = sandbox.files
    assert await files.make_dir("some/where")
    assert not await files.make_dir("some/where")
    await files.write("some/file", "")
    await sandbox.commands.run("ln -s file some/link")
    assert (await files.get_info("some/link")).symlink_target == "file"
    with pytest.raises(InvalidArgumentException):
        await files.list("some/file")
    with pytest.raises(InvalidArgumentException):
        await files.write("some/where", "a directory")


async def test_what_does_not_exist_is_said_so(sandbox):
    for ask in (sandbox.files.read, sandbox.files.list, sandbox.files.get_info):
        with pytest.raises(FileNotFoundException):
            await ask("no/such/thing")


async def test_several_files_at_once_and_compressed_ones(sandbox):
    given = [{"path": f"many/{n}", "data": str(n)} for n in range(5)]
    assert len(await sandbox.files.write_files(given)) == 5
    assert await sandbox.files.read("many/3") == "3"
    await sandbox.files.write("packed", "x" * 100_000, gzip=True)
    assert await sandbox.files.read("packed", gzip=True) == "x" * 100_000


async def test_a_terminal_is_driven_and_resized(sandbox):
    seen = bytearray()
    terminal = await sandbox.pty.create(PtySize(rows=20, cols=70), on_data=seen.extend)
    await sandbox.pty.resize(terminal.pid, PtySize(rows=33, cols=99))
    await sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $((6*7)); exit 5\n")
    with pytest.raises(CommandExitException) as raised:
        await terminal.wait()
    assert raised.value.exit_code == 5
    assert b"33 99" in seen
    assert b"\n42\r" in seen


async def test_a_terminal_is_connected_to_and_killed(sandbox):
    seen, came = bytearray(), asyncio.Event()

    def on_data(data: bytes) -> None:
        seen.extend(data)
        if b"a2b" in seen:
            came.set()

    terminal = await sandbox.pty.create(PtySize(rows=20, cols=70), on_data=lambda data: None)
    await terminal.disconnect()
    again = await sandbox.pty.connect(terminal.pid, on_data=on_data)
    await sandbox.pty.send_stdin(terminal.pid, b"echo a$((1+1))b\n")
    await asyncio.wait_for(came.wait(), 30)
    assert await sandbox.pty.kill(terminal.pid)
    with pytest.raises(CommandExitException):
        await again.wait()


async def test_a_sandbox_is_found_again_and_ends_at_its_time(address):
    made = await AsyncSandbox.create(timeout=300, metadata={"who": "me"}, **address)
    again = await AsyncSandbox.connect(made.sandbox_id, **address)
    assert (await again.commands.run("echo there")).stdout == "there\n"
    assert (await made.get_info()).metadata == {"who": "me"}
    await made.set_timeout(1)
    await asyncio.sleep(3)
    assert not await made.is_running()
    with pytest.raises(SandboxNotRunningException):
        await made.commands.run("true")


async def test_a_caller_without_the_token_gets_nothing(address, sandbox):
    with pytest.raises(AuthenticationException):
        await AsyncSandbox.create(**address | {"api_key": "e2b_wrong"})


async def test_the_client_without_asyncio_does_the_same(address):
    def use() -> None:
        with Sandbox.create(timeout=300, **address) as sandbox:
            assert sandbox.commands.run("echo hello").stdout == "hello\n"
            with pytest.raises(CommandExitException):
                sandbox.commands.run("exit 1")
            running = sandbox.commands.run("cat", background=True, stdin=True)
            sandbox.commands.send_stdin(running.pid, "in\n")
            sandbox.commands.close_stdin(running.pid)
            assert running.wait().stdout == "in\n"
            sandbox.files.write("a/b", "c")
            assert sandbox.files.read("a/b") == "c"
            assert [one.name for one in sandbox.files.list("a")] == ["b"]
            terminal = sandbox.pty.create(PtySize(rows=20, cols=70))
            sandbox.pty.send_stdin(terminal.pid, b"exit\n")
            assert terminal.wait().exit_code == 0

    await asyncio.to_thread(use)
