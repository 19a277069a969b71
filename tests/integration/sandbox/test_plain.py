"""The low levels: what plain processes still keep, and that no caller lands there unasked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from busy_machine import at_best, within
from process_support import is_alive

from artangram.sandbox import (
    Command,
    DirectoryImage,
    HostImage,
    IsolationLevel,
    Limits,
    NamespaceProvider,
    NotCapable,
    PlainProvider,
    Promise,
    SandboxGone,
    open_provider,
    strongest,
)
from artangram.sandbox.capabilities import PROMISES, Capabilities, Feature
from artangram.sandbox.inside.zygote import remove_all
from artangram.sandbox.namespace.kernel import processes_below
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.plain import provider as providers

from .conftest import HELPERS, PYTHON

pytestmark = pytest.mark.asyncio(loop_scope="package")

SOON_S = 0.3
DAEMON = ("setsid", "-f", "sleep", "1000")


@pytest.fixture(scope="module")
def open_dir() -> Iterator[Path]:
    """Not below pytest's own directory, which pytest closes to other users."""
    with tempfile.TemporaryDirectory(prefix="artangram-plain-") as path:
        os.chmod(path, 0o711)
        yield Path(path)


@pytest_asyncio.fixture(
    scope="module", loop_scope="package", params=[IsolationLevel.PROCESS, IsolationLevel.SECCOMP]
)
async def plain(request: pytest.FixtureRequest, open_dir: Path) -> AsyncIterator[PlainProvider]:
    before = set(os.listdir("/proc/self/fd"))
    provider = await PlainProvider.open(level=request.param, state_dir=open_dir)
    yield provider
    await provider.close()
    assert not provider.run_path.exists()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest_asyncio.fixture(loop_scope="package")
async def box(plain: PlainProvider) -> AsyncIterator[LocalSandbox]:
    box = await plain.create(HostImage())
    yield box
    await box.close()


async def test_calls_are_filtered_where_promised(plain: PlainProvider, box: LocalSandbox) -> None:
    code = HELPERS + "print(call(248, b'user', b'name', b'x', 1, -3))"  # add_key on x86_64
    result = await box.run(Command(argv=(*PYTHON, code)))
    assert (result.stdout == b"EPERM\n") == (Promise.FILTERED_CALLS in plain.capabilities.promises)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_under_root_every_sandbox_is_a_user_of_its_own(
    plain: PlainProvider, box: LocalSandbox
) -> None:
    other = await plain.create(HostImage())
    await other.write("secret", b"x")
    uids = {(await each.run(Command(argv=("id", "-u")))).stdout for each in (box, other)}
    assert len(uids) == 2
    assert b"0\n" not in uids
    secret = os.path.join(other.traits.work_dir, "secret")
    assert b"Permission denied" in (await box.run(Command(argv=("cat", secret)))).stderr
    await other.close()
    assert not Path(secret).parent.parent.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="processes are counted per user")
async def test_fork_bomb_is_contained_and_ended(plain: PlainProvider) -> None:
    assert Promise.PROCESS_LIMIT in plain.capabilities.promises
    bombed = await plain.create(HostImage(), limits=Limits(processes=24))
    bomb = "import os, time\nfor _ in range(200):\n  try: os.fork()\n  except OSError: break\n"
    result = await bombed.run(Command(argv=(*PYTHON, bomb + "time.sleep(60)"), timeout_s=1.0))
    assert result.timed_out
    assert 10 < result.leftovers_killed <= 24
    assert processes_below(bombed.pid) == [bombed.pid]
    await bombed.close()


async def test_a_process_that_left_its_session_and_parent_ends_with_the_action(
    box: LocalSandbox,
) -> None:
    stay = 'setsid sh -c ": > {}; exec sleep 1000" &'
    twice = f"setsid sh -c '{stay.format('a')} {stay.format('b')}' & wait $!"
    both = "until test -e a && test -e b; do sleep 0.01; done"
    result = await box.run(Command(argv=("sh", "-c", f"{twice}; {both}")))
    assert result.leftovers_killed == 2
    assert processes_below(box.pid) == [box.pid]


async def test_kept_processes_rest_stopped(box: LocalSandbox) -> None:
    ticking = "while true; do echo x >> ticks; sleep 0.01; done & "
    begun = "until [ -s ticks ]; do sleep 0.01; done"
    await box.run(Command(argv=("sh", "-c", ticking + begun), keep=True))

    async def ticks() -> int:
        before = len(await box.read("ticks"))
        await asyncio.sleep(0.2)
        return len(await box.read("ticks")) - before

    await at_best(ticks, below=1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_the_first_command_has_its_cores_though_the_zygote_reports_late(
    plain: PlainProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, loop = plain.on_created, asyncio.get_running_loop()
    monkeypatch.setattr(plain, "on_created", partial(loop.call_later, 0.2, told))
    box = await plain.create(HostImage())
    look = "import os; print(sorted(os.sched_getaffinity(0)))"
    seen = await box.run(Command(argv=(*PYTHON, look), cores=(1,)))
    await box.close()
    assert seen.stdout == b"[1]\n"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_kept_processes_have_the_cores_of_the_next_command(box: LocalSandbox) -> None:
    await box.run(Command(argv=DAEMON, keep=True))
    assert (await box.run(Command(argv=("true",), cores=(1,)))).leftovers_kept == 1
    (kept,) = processes_below(box.pid)[1:]
    assert os.sched_getaffinity(kept) == {1}


async def test_no_depth_of_directories_outlasts_a_sandbox(plain: PlainProvider) -> None:
    """Nor do those that their owner closed to itself."""
    box = await plain.create(HostImage())
    dig = (
        "import os\nos.mkdir('closed'); open('closed/file', 'w'); os.chmod('closed', 0)\n"
        "for _ in range(1200): os.mkdir('d'); os.chdir('d'); os.symlink('/etc', 'link')"
    )
    assert (await box.run(Command(argv=(*PYTHON, dig)))).ok
    await box.close()
    assert os.listdir(plain.run_path / "boxes") == []


async def test_who_is_cancelled_leaves_no_copy_of_a_snapshot(plain: PlainProvider) -> None:
    box = await plain.create(HostImage())
    await box.write("file", b"x")
    snapshot = await box.snapshot()
    await box.close()
    for _ in range(10):
        making = asyncio.create_task(plain.create(snapshot))
        await asyncio.sleep(0)
        making.cancel()
        await asyncio.wait({making})
    assert os.listdir(plain.run_path / "boxes") == []


async def test_removal_leaves_alone_what_a_directory_is_swapped_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sibling of the same user may still run, and turn one into a link at any moment."""
    box, secret, rename = tmp_path / "box", tmp_path / "secret", os.rename
    (box / "folder").mkdir(parents=True)
    secret.mkdir(mode=0o755)
    (secret / "file").touch()

    def swap(source: str, target: str) -> None:
        (box / "folder").rmdir()
        (box / "folder").symlink_to(secret)
        rename(source, target)

    monkeypatch.setattr(os, "rename", swap)
    remove_all(str(box))
    assert os.listdir(secret) == ["file"]
    assert not box.exists()


async def test_killed_init_takes_its_processes_along(plain: PlainProvider) -> None:
    box = await plain.create(HostImage())
    await box.run(Command(argv=DAEMON, keep=True))
    pids = processes_below(box.pid)
    assert len(pids) == 2
    os.kill(box.pid, signal.SIGKILL)
    assert await within(SOON_S, lambda: not any(map(is_alive, pids)))
    with pytest.raises(SandboxGone):
        await box.run(Command(argv=("true",)))
    await box.close()


OWNER = """
import asyncio, json, pathlib, sys
from artangram.sandbox import Command, HostImage, PlainProvider
from artangram.sandbox.namespace.kernel import processes_below
async def main():
    provider = await PlainProvider.open(state_dir=pathlib.Path(sys.argv[1]))
    boxes = [await provider.create(HostImage()) for _ in range(2)]
    for box in boxes:
        await box.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
    pids = [pid for box in boxes for pid in processes_below(box.pid)]
    zygote = provider.zygote_pid
    print(json.dumps({"pids": pids, "zygote": zygote, "run": str(provider.run_path)}), flush=True)
    await boxes[0].run(Command(argv=("sleep", "1000"), timeout_s=1000))
asyncio.run(main())
"""


@pytest.fixture
def owner(open_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, open_dir], stdout=subprocess.PIPE, cwd=open_dir
    )
    assert process.stdout is not None
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("zygote_too", [False, True])
async def test_killed_owner_leaves_no_process(
    owner: tuple[subprocess.Popen[bytes], dict[str, Any]], zygote_too: bool
) -> None:
    process, owned = owner
    assert len(owned["pids"]) == 4
    if zygote_too:
        os.kill(owned["zygote"], signal.SIGKILL)
    process.kill()
    assert await within(SOON_S, lambda: not any(map(is_alive, owned["pids"])))
    assert await within(SOON_S, lambda: zygote_too or not os.path.exists(owned["run"]))


async def test_other_images_are_refused(plain: PlainProvider, rootfs: Path) -> None:
    with pytest.raises(NotCapable, match="ask for no source"):
        await plain.create(DirectoryImage(path=str(rootfs)))


def weak(level: IsolationLevel) -> Capabilities:
    missing = Feature(name="namespaces", available=False, detail="EPERM", how="ask the admin")
    present = Feature(name="linux", available=True)
    return Capabilities(level=level, features=(present, missing), promises=PROMISES[level])


@pytest.mark.parametrize("level", [IsolationLevel.PROCESS, IsolationLevel.SECCOMP])
async def test_the_ladder_goes_low_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, level: IsolationLevel, open_dir: Path
) -> None:
    for module in (strongest, providers):
        monkeypatch.setattr(module, "probe", lambda: weak(level))
    with pytest.raises(NotCapable, match="ask the admin"):
        await open_provider(state_dir=open_dir)
    with pytest.raises(NotCapable, match="ask the admin"):
        await open_provider(lowest=IsolationLevel(level + 1), state_dir=open_dir)
    provider = await open_provider(lowest=IsolationLevel.PROCESS, state_dir=open_dir)
    assert provider.capabilities.level == level
    assert Promise.HIDDEN_FILES not in provider.capabilities.promises
    await provider.close()


async def test_the_ladder_takes_the_strongest_there_is(state_dir: Path) -> None:
    provider = await open_provider(lowest=IsolationLevel.PROCESS, state_dir=state_dir)
    assert isinstance(provider, NamespaceProvider)
    await provider.close()
