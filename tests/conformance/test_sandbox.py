"""What every sandbox provider promises, the fake included.

Where a provider promises less (`capabilities.promises`), it is asked for less, never skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from busy_machine import at_best, eventually
from process_support import is_alive

from artangram.core.errors import BadInput
from artangram.sandbox import (
    Command,
    CommandResult,
    ContainerProvider,
    CreateFailed,
    FakeProvider,
    HostImage,
    IsolationLevel,
    Limits,
    NamespaceProvider,
    NotCapable,
    Output,
    PlainProvider,
    Promise,
    Sandbox,
    SandboxError,
    SandboxGone,
    SandboxProvider,
    Snapshot,
    SnapshotTerms,
    Source,
    TarImage,
    Warm,
)
from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import LEAST_INODES, LEAST_MEMORY_MB, MOST_PROCESSES
from artangram.sandbox.protocol import MOST_OF_ANYTHING as MOST
from integration.sandbox.small_root import fill

# One event loop for all: providers are expensive to make and belong to a loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

INSTALL_ENGINE = Path(__file__).parents[1] / "install_engine.sh"
PROGRAMS = "cat echo env false nproc pwd setsid sh sleep taskset true yes"
LATE_S = 0.05
SLACK_S = 0.2  # until the caller sees it


async def fake_provider() -> SandboxProvider:
    return FakeProvider()


async def plain_provider(level: IsolationLevel) -> SandboxProvider:
    try:
        return await PlainProvider.open(level=level)
    except NotCapable as problem:
        pytest.skip(str(problem))


async def process_provider() -> SandboxProvider:
    return await plain_provider(IsolationLevel.PROCESS)


async def seccomp_provider() -> SandboxProvider:
    return await plain_provider(IsolationLevel.SECCOMP)


async def namespace_provider() -> SandboxProvider:
    try:
        return await NamespaceProvider.open()
    except NotCapable as problem:
        pytest.skip(str(problem))


async def python_provider() -> SandboxProvider:
    """Namespaces without the compiled init."""
    try:
        return await NamespaceProvider.open(compiled=False)
    except NotCapable as problem:
        pytest.skip(str(problem))


def install_engine() -> subprocess.CompletedProcess[str]:
    command = ["sh", INSTALL_ENGINE, "engine"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def container_provider() -> SandboxProvider:
    installed = install_engine()
    if installed.returncode:
        pytest.skip(f"no engine for the container provider: {installed.stderr[-500:]}")
    try:
        return await ContainerProvider.open()
    except NotCapable as problem:
        pytest.skip(str(problem))


Maker = Callable[[], Awaitable[SandboxProvider]]
MAKERS: list[Maker] = [
    fake_provider,
    process_provider,
    seccomp_provider,
    namespace_provider,
    python_provider,
    container_provider,
]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.__name__)
def maker(request: pytest.FixtureRequest) -> Maker:
    made: Maker = request.param
    return made


@pytest.fixture(scope="module")
def source(maker: Maker, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """What its sandboxes are made from: a real image where the provider is about images."""
    if maker is not container_provider:
        return HostImage()
    root = tmp_path_factory.mktemp("root")
    fill(root, PROGRAMS.split())
    path = root.parent / "small.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(root, arcname=".")
    return TarImage(path=str(path))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(maker: Maker) -> AsyncIterator[SandboxProvider]:
    provider = await maker()
    yield provider
    await provider.close()


@pytest.fixture
def promises(provider: SandboxProvider) -> frozenset[Promise]:
    return provider.capabilities.promises


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm(provider: SandboxProvider, source: Source) -> AsyncIterator[Warm]:
    """An engine needs a while for each sandbox: it may work while tests sleep."""
    warm = Warm(provider, source, size=2)
    yield warm
    await warm.close()


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(warm: Warm) -> AsyncIterator[Sandbox]:
    sandbox = await warm.claim()
    yield sandbox
    await sandbox.close()


def a_command(*argv: str, **more: object) -> Command:
    return Command(argv=argv, **more)  # type: ignore[arg-type]


async def test_output_and_exit_code_come_back(sandbox: Sandbox) -> None:
    result = await sandbox.run(a_command("echo", "hello"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"hello\n", b"")
    assert result.ok


async def test_failure_is_a_result_not_an_exception(sandbox: Sandbox) -> None:
    result = await sandbox.run(a_command("false"))
    assert (result.exit_code, result.ok, result.signal) == (1, False, 0)


async def test_missing_program_is_exit_127_with_a_reason(sandbox: Sandbox) -> None:
    result = await sandbox.run(a_command("no-such-program"))
    assert result.exit_code == 127
    assert "No such file" in result.start_error


async def test_a_missing_working_directory_is_not_taken_for_a_missing_program(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    if isinstance(provider, FakeProvider):
        return  # It has files but no directories.
    result = await sandbox.run(a_command("true", cwd="/work/nowhere"))
    told = "its working directory: No such file or directory"
    assert (result.exit_code, result.start_error) == (126, told)


async def test_more_words_than_a_program_takes_are_exit_126_with_a_reason(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    if isinstance(provider, FakeProvider):
        return  # it starts nothing
    result = await sandbox.run(a_command("true", "x" * (5 << 20)))
    assert (result.exit_code, result.start_error) == (126, "Argument list too long")


async def test_program_may_lower_its_own_limits_at_once(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    if isinstance(provider, FakeProvider):
        return  # it starts nothing
    for _ in range(30):
        result = await sandbox.run(a_command("sh", "-c", "ulimit -n 64; echo started"))
        assert (result.start_error, result.stdout) == ("", b"started\n")


async def test_errors_are_printed_apart_from_output(sandbox: Sandbox) -> None:
    result = await sandbox.run(a_command("cat", "/work/nothing"))
    assert result.stdout == b""
    assert b"No such file" in result.stderr


async def test_stdin_is_empty_unless_given(sandbox: Sandbox) -> None:
    assert (await sandbox.run(a_command("cat"))).stdout == b""
    assert (await sandbox.run(a_command("cat", stdin=b"given"))).stdout == b"given"


async def test_environ_is_exactly_the_base_and_what_was_given(
    sandbox: Sandbox, promises: frozenset[Promise]
) -> None:
    result = await sandbox.run(a_command("env", environ={"COLOUR": "green"}))
    names = {line.partition(b"=")[0] for line in result.stdout.splitlines()}
    assert b"COLOUR=green" in result.stdout.splitlines()
    known = {b"COLOUR", b"PATH", b"HOME", b"USER", b"LANG"}
    assert names <= known | (set() if Promise.HIDDEN_FILES in promises else {b"TMPDIR"})


async def test_commands_start_in_the_work_directory(
    sandbox: Sandbox, promises: frozenset[Promise]
) -> None:
    where = (await sandbox.run(a_command("pwd"))).stdout
    assert where == b"/work\n" if Promise.HIDDEN_FILES in promises else where.endswith(b"/work\n")
    assert (await sandbox.run(a_command("pwd", cwd="/tmp"))).stdout == b"/tmp\n"
    assert (await sandbox.run(a_command("pwd", cwd="/work"))).stdout == where


async def test_files_written_are_seen_by_commands_and_read_back(sandbox: Sandbox) -> None:
    await sandbox.write("deep/er/file.txt", b"content")
    result = await sandbox.run(a_command("cat", "deep/er/file.txt"))
    assert result.stdout == b"content"
    assert await sandbox.read("/work/deep/er/file.txt") == b"content"


async def test_writing_again_replaces_the_whole_file(sandbox: Sandbox) -> None:
    await sandbox.write("file", b"a long first version")
    await sandbox.write("file", b"short")
    assert await sandbox.read("file") == b"short"


async def test_large_file_survives_the_round_trip(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 12_000
    await sandbox.write("large", data)
    assert await sandbox.read("large") == data
    with pytest.raises(OSError, match="large"):
        await sandbox.read("large", max_bytes=len(data) - 1)


async def test_missing_file_and_directory_are_os_errors(sandbox: Sandbox) -> None:
    await sandbox.write("folder/file", b"")
    with pytest.raises(FileNotFoundError):
        await sandbox.read("nothing")
    with pytest.raises(IsADirectoryError):
        await sandbox.read("folder")


async def test_deadline_ends_the_command_on_time(sandbox: Sandbox) -> None:
    async def lateness() -> float:
        began_at = time.monotonic()
        result = await sandbox.run(a_command("sleep", "30", timeout_s=0.2))
        told_s = time.monotonic() - began_at - result.run_s
        assert (result.timed_out, result.signal, result.exit_code) == (True, 9, 137)
        assert result.run_s >= 0.2
        return max((result.run_s - 0.2) / LATE_S, told_s / SLACK_S)

    await at_best(lateness, below=1.0)


async def test_time_may_be_as_long_as_a_caller_likes(sandbox: Sandbox) -> None:
    """Three months are more milliseconds than the kernel can count."""
    for timeout_s in (8e6, 1e18, 1e300):
        assert (await sandbox.run(a_command("true", timeout_s=timeout_s))).ok


async def test_output_beyond_the_cap_is_counted_and_dropped(sandbox: Sandbox) -> None:
    result = await sandbox.run(a_command("yes", timeout_s=0.2, output_bytes=1000))
    assert result.timed_out
    assert result.stdout == b"y\n" * 500
    assert result.truncated_bytes > 10_000


async def test_leftovers_are_killed_and_counted(sandbox: Sandbox) -> None:
    result = await sandbox.run(a_command("setsid", "-f", "sleep", "100"))
    assert (result.exit_code, result.leftovers_killed, result.leftovers_kept) == (0, 1, 0)


async def test_leftovers_are_kept_when_asked(sandbox: Sandbox) -> None:
    kept = await sandbox.run(a_command("setsid", "-f", "sleep", "100", keep=True))
    assert (kept.leftovers_killed, kept.leftovers_kept) == (0, 1)
    later = await sandbox.run(a_command("setsid", "-f", "sleep", "100"))
    assert (later.leftovers_killed, later.leftovers_kept) == (1, 1)


async def test_who_is_kept_is_known_until_a_stopped_command_takes_all_along(
    sandbox: Sandbox,
) -> None:
    assert not sandbox.has_kept
    await sandbox.run(a_command("setsid", "-f", "sleep", "100", keep=True))
    for argv in (("true",), ("/no/such/program",)):
        await sandbox.run(a_command(*argv))
        assert sandbox.has_kept
    for begins_within_s in (0.1, 1.0, 10.0):  # Who is stopped before that takes nobody along.
        stopped = asyncio.create_task(sandbox.run(a_command("sleep", "100")))
        await asyncio.sleep(begins_within_s)
        stopped.cancel()
        await asyncio.wait({stopped})
        if not sandbox.has_kept:
            break
    assert not sandbox.has_kept
    await sandbox.run(a_command("setsid", "-f", "sleep", "100", keep=True))
    assert (await sandbox.run(a_command("sleep", "100", timeout_s=0.05))).timed_out
    assert not sandbox.has_kept


async def test_second_command_waits_for_the_first(sandbox: Sandbox) -> None:
    first = asyncio.create_task(sandbox.run(a_command("sleep", "0.2")))
    await asyncio.sleep(0.05)
    await sandbox.run(a_command("true"))
    assert first.done()
    assert first.result().ok


Ended = CommandResult | SandboxError


async def test_what_is_begun_ends_as_what_is_run(sandbox: Sandbox) -> None:
    endings: asyncio.Queue[Ended] = asyncio.Queue()
    assert sandbox.begin(a_command("sleep", "0.2"), endings.put_nowait)
    assert not sandbox.begin(a_command("true"), endings.put_nowait)
    await sandbox.run(a_command("true"))
    slept = endings.get_nowait()
    assert sandbox.begin(a_command("echo", "hi"), endings.put_nowait)
    assert endings.empty()
    said = await endings.get()
    assert isinstance(slept, CommandResult)
    assert isinstance(said, CommandResult)
    assert (slept.exit_code, said.exit_code, said.stdout) == (0, 0, b"hi\n")
    assert slept.run_s >= 0.2


async def test_what_is_begun_and_cannot_start_says_so(sandbox: Sandbox) -> None:
    endings: asyncio.Queue[Ended] = asyncio.Queue()
    assert sandbox.begin(a_command("no-such-program"), endings.put_nowait)
    ended = await endings.get()
    assert isinstance(ended, CommandResult)
    assert (ended.exit_code, bool(ended.start_error)) == (127, True)


async def test_what_is_begun_can_be_ended(sandbox: Sandbox) -> None:
    endings: asyncio.Queue[Ended] = asyncio.Queue()
    assert sandbox.begin(a_command("sleep", "30"), endings.put_nowait)
    sandbox.end_command()
    ended = await endings.get()
    assert isinstance(ended, CommandResult)
    assert ended.signal == 9
    assert (await sandbox.run(a_command("echo", "still here"))).stdout == b"still here\n"


async def test_what_is_begun_ends_with_its_sandbox(sandbox: Sandbox) -> None:
    endings: asyncio.Queue[Ended] = asyncio.Queue()
    assert sandbox.begin(a_command("sleep", "30"), endings.put_nowait)
    await sandbox.close()
    assert isinstance(await endings.get(), SandboxGone)
    assert not sandbox.begin(a_command("true"), endings.put_nowait)


async def test_files_are_served_while_a_command_runs(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.run(a_command("sleep", "30")))
    await asyncio.sleep(0.05)
    await sandbox.write("meanwhile", b"1")
    assert await sandbox.read("meanwhile") == b"1"
    assert not running.done()
    sandbox.end_command()
    await running


async def test_cancelled_command_ends_and_the_sandbox_lives_on(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.run(a_command("sleep", "30")))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await sandbox.run(a_command("echo", "still here"))
    assert (result.stdout, result.leftovers_killed) == (b"still here\n", 0)


async def test_cancel_at_any_moment_leaves_the_sandbox_usable(sandbox: Sandbox) -> None:
    """Also just when the answer is on its way."""
    for delay_s in (0, 0, 0.0005, 0.001, 0.001, 0.0015, 0.002, 0.002, 0.003, 0.004):

        async def answer_s(delay_s: float = delay_s) -> float:
            running = asyncio.create_task(sandbox.run(a_command("true")))
            await asyncio.sleep(delay_s)
            running.cancel()
            await asyncio.wait({running})
            began_at = time.monotonic()
            assert (await sandbox.run(a_command("echo", "x"))).stdout == b"x\n"
            return time.monotonic() - began_at

        await at_best(answer_s, below=0.5)


async def test_stream_yields_output_and_ends_with_the_result(sandbox: Sandbox) -> None:
    pieces = [piece async for piece in sandbox.stream(a_command("echo", "hello"))]
    *outputs, result = pieces
    assert isinstance(result, CommandResult)
    assert result.exit_code == 0
    texts = [piece.data for piece in outputs if isinstance(piece, Output)]
    assert b"".join(texts) == b"hello\n"


async def test_abandoned_stream_ends_the_command(sandbox: Sandbox) -> None:
    async with contextlib.aclosing(sandbox.stream(a_command("echo", "x"))) as stream:
        async for _ in stream:
            break
    assert (await sandbox.run(a_command("true"))).ok


async def test_resize_needs_at_least_one_core(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.run(a_command("sleep", "30", cores=(0,))))
    await asyncio.sleep(0.05)
    await sandbox.resize((0, 1))
    await sandbox.resize((1,))
    with pytest.raises(ValueError, match="core"):
        await sandbox.resize(())
    assert not running.done()
    sandbox.end_command()
    await running


async def test_frozen_sandbox_wakes_for_a_command(sandbox: Sandbox) -> None:
    await sandbox.freeze()
    assert (await sandbox.run(a_command("true"))).ok
    await sandbox.freeze()
    await sandbox.thaw()
    assert (await sandbox.run(a_command("true"))).ok


@pytest.mark.parametrize("way", ["cancel", "end"])
async def test_a_command_that_is_frozen_can_be_ended(sandbox: Sandbox, way: str) -> None:
    running = asyncio.ensure_future(sandbox.run(a_command("sleep", "60")))
    await asyncio.sleep(0.2)
    await sandbox.freeze()
    if way == "cancel":
        running.cancel()
    else:
        sandbox.end_command()
    await asyncio.wait({running})
    assert sandbox.is_alive
    assert (await sandbox.run(a_command("true"))).ok


async def test_snapshot_gives_siblings_the_files_of_that_moment(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("shared", b"before")
    snapshot = await sandbox.snapshot()
    await sandbox.write("shared", b"after")
    first, second = await provider.create(snapshot), await provider.create(snapshot)
    await first.write("shared", b"mine")
    assert await second.read("shared") == b"before"
    assert await sandbox.read("shared") == b"after"
    await second.write("more", b"2")
    third = await provider.create(await second.snapshot())
    assert (await third.read("shared"), await third.read("more")) == (b"before", b"2")
    await asyncio.gather(first.close(), second.close(), third.close())


async def test_a_snapshot_travels_to_another_provider(
    maker: Maker, provider: SandboxProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("shared", b"before")
    sibling = await provider.create(await sandbox.snapshot())
    await sibling.write("more", b"2")
    snapshot = await sibling.snapshot()
    await provider.pack(snapshot)
    other = await maker()
    try:
        for _ in range(2):  # Twice is as good as once.
            shutil.copyfile(provider.archive(snapshot), other.archive(snapshot))
            await other.adopt(snapshot)
        there = await other.create(snapshot)
        assert (await there.read("shared"), await there.read("more")) == (b"before", b"2")
        assert (await there.run(a_command("cat", "shared"))).stdout == b"before"
        await other.forget(snapshot)
        with pytest.raises(CreateFailed):
            await other.create(snapshot)
        assert await there.read("more") == b"2"
    finally:
        await other.close()
        await sibling.close()


async def test_forgotten_snapshot_cannot_be_started(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("file", b"x")
    snapshot = await sandbox.snapshot()
    sibling = await provider.create(snapshot)
    await provider.forget(snapshot)
    with pytest.raises(CreateFailed):
        await provider.create(snapshot)
    assert await sibling.read("file") == b"x"


async def test_unknown_snapshot_is_refused(provider: SandboxProvider) -> None:
    with pytest.raises(CreateFailed):
        await provider.create(Snapshot(name="never-made"))


async def test_a_name_means_the_newest_snapshot_that_got_it(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    for version in (b"1", b"2"):
        await sandbox.write("file", version)
        assert (await sandbox.snapshot(SnapshotTerms(name="a/b:1"))).name == "a/b:1"
    sibling = await provider.create(Snapshot(name="a/b:1"))
    assert await sibling.read("file") == b"2"
    assert [one.name for one in await provider.snapshots()].count("a/b:1") == 1
    assert await provider.forget(Snapshot(name="a/b:1"))
    assert not await provider.forget(Snapshot(name="a/b:1"))
    await sibling.close()


async def test_a_list_has_the_snapshots_that_are_for_siblings(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("file", b"x" * 8192)
    own = await sandbox.snapshot()
    with_end = await sandbox.snapshot(SnapshotTerms(keep_s=1000.0))
    named = await sandbox.snapshot(SnapshotTerms(name="named"))
    listed = {one.name: one for one in await provider.snapshots()}
    assert own.name not in listed
    assert (listed[with_end.name].keep_s, listed["named"].keep_s) == (1000.0, None)
    assert listed["named"].is_named
    assert not listed[with_end.name].is_named
    assert min(listed[one.name].size_bytes for one in (with_end, named)) >= 8192
    for one in (own, with_end, named):
        await provider.forget(one)


async def test_a_snapshot_that_was_idle_for_its_time_is_forgotten(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("file", b"x")
    taken = await sandbox.snapshot(SnapshotTerms(name="brief", keep_s=0.2))
    for _ in range(100):
        if "brief" not in {one.name for one in await provider.snapshots()}:
            break
        await asyncio.sleep(0.05)
    with pytest.raises(CreateFailed, match="no snapshot 'brief'"):
        await provider.create(taken)


async def test_sandboxes_do_not_see_each_others_files(
    provider: SandboxProvider, source: Source, promises: frozenset[Promise]
) -> None:
    one, other = await provider.create(source), await provider.create(source)
    shared = "/tmp/secret" if Promise.HIDDEN_FILES in promises else "/work/secret"
    await one.write(shared, b"x")
    with pytest.raises(FileNotFoundError):
        await other.read(shared)
    await asyncio.gather(one.close(), other.close())


async def test_files_of_the_machine_are_hidden_where_promised(
    sandbox: Sandbox, promises: frozenset[Promise]
) -> None:
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(b"secret")
        secret.flush()
        os.chmod(secret.name, 0o644)
        seen = await sandbox.run(a_command("cat", secret.name))
    assert (seen.stdout == b"secret") == (Promise.HIDDEN_FILES not in promises)


async def test_disk_is_limited_where_promised(
    provider: SandboxProvider, source: Source, promises: frozenset[Promise]
) -> None:
    if Promise.DISK_LIMIT not in promises:
        return
    sandbox = await provider.create(source, limits=Limits(memory_mb=64, disk_mb=4))
    for name in ("one", "two", "three"):
        await sandbox.write(name, bytes(1 << 20))
    with pytest.raises(OSError, match="No space left"):
        await sandbox.write("four", bytes(2 << 20))
    await sandbox.close()


async def test_one_command_may_have_less_disk_than_its_sandbox(
    provider: SandboxProvider, source: Source
) -> None:
    if isinstance(provider, FakeProvider):
        return  # Its programs write no files.
    sandbox = await provider.create(source, limits=Limits(memory_mb=64, disk_mb=16))
    await sandbox.write("one", bytes(1 << 20))
    doubled = a_command("sh", "-c", "cat one one one > three")
    limited = a_command(*doubled.argv, disk_mb=2)
    assert [(await sandbox.run(one)).ok for one in (limited, doubled)] == [False, True]
    await sandbox.close()


async def test_cores_are_held_where_promised(
    sandbox: Sandbox, promises: frozenset[Promise]
) -> None:
    if Promise.HELD_CORES not in promises:
        return
    result = await sandbox.run(a_command("taskset", "-c", "0,1", "nproc", cores=(0,)))
    assert result.stdout in (b"1\n", b"")
    assert (await sandbox.run(a_command("nproc", cores=(0,)))).stdout == b"1\n"
    every = tuple(sorted(os.sched_getaffinity(0)))
    # From its first instruction on: many programs look only once, as they begin.
    for _ in range(3):
        told = await sandbox.run(a_command("nproc", cores=every))
        assert told.stdout == f"{len(every)}\n".encode()


async def test_cores_that_nobody_has_are_refused(
    provider: SandboxProvider, sandbox: Sandbox
) -> None:
    if isinstance(provider, FakeProvider):
        return  # it has as many as it is asked for
    for cores in ((4095,), (0, 4095)):
        with pytest.raises(BadInput, match="4095"):
            await sandbox.run(a_command("true", cores=cores))
    running = asyncio.create_task(sandbox.run(a_command("sleep", "30", cores=(0,))))
    await asyncio.sleep(0.05)
    with pytest.raises(BadInput, match="cores: 4095"):
        await sandbox.resize((4095,))
    sandbox.end_command()
    assert (await running).core_s < 5


async def test_result_tells_the_wait_and_the_core_seconds(sandbox: Sandbox) -> None:
    async def sleep() -> CommandResult:
        return await sandbox.run(a_command("sleep", "0.3", cores=(0,)))

    async def error_s() -> float:
        first, second = await asyncio.gather(sleep(), sleep())
        assert first.core_s >= 0.3
        told_s = (first.lease_wait_s, second.lease_wait_s - 0.3, first.core_s - 0.3)
        return max(map(abs, told_s))

    await at_best(error_s, below=0.2)
    assert (await sandbox.run(a_command("true"))).core_s == 0


async def test_core_seconds_count_every_core_that_was_held(sandbox: Sandbox) -> None:
    async def error_s() -> float:
        running = asyncio.create_task(sandbox.run(a_command("sleep", "0.4", cores=(0,))))
        await asyncio.sleep(0.2)
        await sandbox.resize((0, 1))
        return abs((await running).core_s - 0.6)

    await at_best(error_s, below=0.1)


async def test_closed_sandbox_raises_gone_and_closes_again(sandbox: Sandbox) -> None:
    await sandbox.close()
    await sandbox.close()
    assert not sandbox.is_alive
    for attempt in (
        sandbox.run(a_command("true")),
        sandbox.read("x"),
        sandbox.write("x", b""),
        sandbox.freeze(),
        sandbox.snapshot(),
    ):
        with pytest.raises(SandboxGone):
            await attempt


async def test_close_under_a_running_command_raises_gone(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.run(a_command("sleep", "30")))
    await asyncio.sleep(0.05)
    await sandbox.close()
    with pytest.raises(SandboxGone):
        await running


async def test_closed_provider_ends_its_sandboxes(maker: Maker, source: Source) -> None:
    provider = await maker()
    sandbox = await provider.create(source)
    await provider.close()
    assert not sandbox.is_alive
    with pytest.raises(SandboxGone):
        await provider.create(source)


async def test_closed_provider_ends_what_was_about_to_be_made(maker: Maker, source: Source) -> None:
    provider = await maker()
    await provider.create(source)
    making = [asyncio.create_task(provider.create(source)) for _ in range(12)]
    await asyncio.sleep(0.01)
    await provider.close()
    made = await asyncio.gather(*making, return_exceptions=True)
    for one in made:
        if isinstance(one, BaseException):
            assert isinstance(one, SandboxError)
        else:
            assert not one.is_alive
    if isinstance(provider, NamespaceProvider | PlainProvider):
        assert not provider.live
        assert not is_alive(provider.zygote_pid)


async def test_closed_provider_makes_nothing_of_an_image_that_comes_late(
    maker: Maker, source: Source
) -> None:
    provider = await maker()
    making = asyncio.create_task(provider.create(source))
    await asyncio.sleep(0)  # It waits for the image, if it waits at all.
    await provider.close()
    await asyncio.wait({making}, timeout=20)
    assert making.done()
    assert isinstance(making.exception(), SandboxError) or not making.result().is_alive


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a\0b",)},
        {"argv": ("a", "b" * (7 << 20))},
        {"argv": ("a",), "timeout_s": 0},
        {"argv": ("a",), "timeout_s": float("nan")},
        {"argv": ("a",), "timeout_s": float("inf")},
        {"argv": ("a",), "output_bytes": -1},
        {"argv": ("a",), "processes": -1},
        {"argv": ("a",), "processes": MOST_PROCESSES + 1},
        {"argv": ("a",), "memory_mb": LEAST_MEMORY_MB - 1},
        {"argv": ("a",), "disk_mb": -1},
        {"argv": ("a",), "environ": {"A=B": "c"}},
        {"argv": ("a",), "environ": {"A": "b" * (7 << 20)}},
    ],
)
async def test_impossible_commands_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput) as caught:
        Command(**wrong)  # type: ignore[arg-type]
    assert list(wrong)[-1] in caught.value.field


@pytest.mark.parametrize(
    "wrong",
    [
        {"disk_mb": 513},
        {"disk_mb": 0},
        {"memory_mb": LEAST_MEMORY_MB - 1, "disk_mb": 1},
        {"memory_mb": 1 << 44},
        {"processes": 0},
        {"processes": MOST_PROCESSES + 1},
        {"inodes": LEAST_INODES - 1},
        {"inodes": 1 << 62},
    ],
)
async def test_limits_that_no_sandbox_can_keep_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput) as caught:
        Limits(**wrong)  # type: ignore[arg-type]
    assert caught.value.field == next(iter(wrong))


async def test_no_command_may_use_more_than_its_sandbox(
    provider: SandboxProvider, source: Source
) -> None:
    sandbox = await provider.create(source, limits=Limits(memory_mb=64, disk_mb=8, processes=8))
    with pytest.raises(BadInput, match="memory_mb: 65 is more than its sandbox may use"):
        await sandbox.run(a_command("true", memory_mb=65))
    with pytest.raises(BadInput, match="processes: 9 is more than its sandbox may use"):
        await sandbox.run(a_command("true", processes=9))
    with pytest.raises(BadInput, match="disk_mb: 9 is more than its sandbox may use"):
        await sandbox.run(a_command("true", disk_mb=9))
    assert (await sandbox.run(a_command("true", memory_mb=64, processes=8, disk_mb=8))).ok
    await sandbox.close()


async def test_the_least_and_most_that_can_be_asked_for_make_a_sandbox(
    provider: SandboxProvider, source: Source
) -> None:
    least = Limits(memory_mb=LEAST_MEMORY_MB, disk_mb=1, inodes=LEAST_INODES, processes=1)
    most = Limits(memory_mb=MOST, disk_mb=MOST, inodes=MOST, processes=MOST_PROCESSES)
    for limits in (least, most):
        sandbox = await provider.create(source, limits=limits)
        result = await sandbox.run(a_command("true"))
        # Where memory is that of each process, all that it could touch counts, libraries too.
        is_by_process = Promise.MEMORY_LIMIT not in provider.capabilities.promises
        assert result.ok or (limits is least and is_by_process and result.start_error)
        await sandbox.close()


async def test_warm_pool_hands_over_ready_sandboxes_and_refills(
    provider: SandboxProvider, source: Source
) -> None:
    warm = Warm(provider, source, size=2)
    await warm.fill()
    first, second, third = [await warm.claim() for _ in range(3)]
    assert len({first.name, second.name, third.name}) == 3
    assert (await third.run(a_command("true"))).ok
    assert await eventually(lambda: warm.num_ready == 2)
    await asyncio.gather(first.close(), second.close(), third.close())
    await warm.close()
    with pytest.raises(SandboxGone):
        await warm.claim()


class Heard:
    """What a process printed."""

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, piece: Output) -> None:
        self.data += piece.data

    async def has(self, text: bytes) -> None:
        assert await eventually(lambda: text in self.data), self.data


async def test_processes_run_beside_each_other_and_a_command(sandbox: Sandbox) -> None:
    heard = [Heard() for _ in range(3)]
    started = [await sandbox.start(a_command("cat", parallel=True), one) for one in heard]
    assert len({process.pid for process in started}) == 3
    for number, process in enumerate(started):
        await process.feed(ProcessInput(stdin=b"to %d" % number))
        assert (await sandbox.run(a_command("echo", "beside"))).stdout == b"beside\n"
    for number, (process, one) in enumerate(zip(started, heard, strict=True)):
        await one.has(b"to %d" % number)
        await process.feed(ProcessInput(closes_stdin=True))
        result = await process.wait()
        assert (result.exit_code, result.stdout) == (0, b"")


async def test_input_that_is_told_twice_arrives_once(sandbox: Sandbox) -> None:
    heard = Heard()
    cat = await sandbox.start(a_command("cat", parallel=True), heard)
    for _ in range(2):
        await cat.feed(ProcessInput(stdin=b"once", stdin_at=0))
    await cat.feed(ProcessInput(stdin=b"ce, then on", stdin_at=2, closes_stdin=True))
    assert (await cat.wait()).exit_code == 0
    assert heard.data == b"once, then on"


async def test_a_process_past_its_limit_ends_alone(sandbox: Sandbox) -> None:
    heard = Heard()
    cat = await sandbox.start(a_command("cat", parallel=True), heard)
    late = await sandbox.start(a_command("sleep", "100", parallel=True, timeout_s=0.1), Heard())
    assert (await late.wait()).timed_out
    assert (await sandbox.run(a_command("sleep", "100", timeout_s=0.1))).timed_out
    await cat.feed(ProcessInput(stdin=b"alive"))
    await heard.has(b"alive")
    cat.end()
    ended = await cat.wait()
    assert (ended.exit_code, ended.signal, ended.timed_out) == (137, 9, False)


async def test_a_signal_reaches_a_process(sandbox: Sandbox) -> None:
    sleeper = await sandbox.start(a_command("sleep", "100", parallel=True), Heard())
    await sleeper.signal(15)
    assert (await sleeper.wait()).signal == 15
    await sleeper.signal(15)  # nothing happens


async def test_a_process_without_a_program_says_why(sandbox: Sandbox) -> None:
    missing = await sandbox.start(a_command("no-such-program", parallel=True), Heard())
    assert (await missing.wait()).start_error == "No such file or directory"


async def test_processes_end_with_their_sandbox(warm: Warm) -> None:
    sandbox = await warm.claim()
    sleeper = await sandbox.start(a_command("sleep", "100", parallel=True), Heard())
    await sandbox.close()
    with contextlib.suppress(SandboxGone):
        await sleeper.wait()
