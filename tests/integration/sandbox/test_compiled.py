"""Building the C init: a bad, slow or strict compiler never stops a sandbox, and is told."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from artangram.sandbox import Command, HostImage, NamespaceProvider, NotCapable, probe
from artangram.sandbox.namespace import compiled, provider
from artangram.sandbox.namespace.sandbox import LocalSandbox

REAL = shutil.which("cc")
pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.skipif(REAL is None, reason="no C compiler"),
]

Compiler = Callable[[str], None]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Puts a shell script in the compiler's place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def put(script: str) -> None:
        (folder / "cc").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "cc").chmod(0o755)

    return put


async def opened(state_dir: Path) -> NamespaceProvider:
    try:
        return await NamespaceProvider.open(state_dir=state_dir)
    except NotCapable as problem:
        pytest.skip(str(problem))


def loaded(sandbox: LocalSandbox) -> bool:
    """Has init the compiled loop in its memory?"""
    return "/built/init-" in Path(f"/proc/{sandbox.pid}/maps").read_text()


async def works(sandbox: LocalSandbox) -> bool:
    result = await sandbox.run(Command(argv=("echo", "here")))
    return result.stdout == b"here\n"


async def test_a_compiler_that_warns_builds_it(compiler: Compiler, tmp_path: Path) -> None:
    strict = tmp_path / "strict.h"
    strict.write_text("static int nothing_uses_this(void) { return 1; }\n")
    compiler(f'exec {REAL} -include {strict} "$@"')
    assert (await compiled.build(tmp_path)).exists()


async def test_a_build_that_fails_is_logged_and_python_serves(
    compiler: Compiler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiler("echo cannot find crt1.o >&2; exit 1")
    with caplog.at_level(logging.WARNING):
        serving = await opened(tmp_path)
    assert "cannot find crt1.o" in caplog.text
    sandbox = await serving.create(HostImage())
    assert (await works(sandbox), loaded(sandbox)) == (True, False)
    await serving.close()
    assert not list((tmp_path / "built").iterdir())


async def test_a_library_that_cannot_be_loaded_is_not_kept(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler('while [ "$1" != -o ]; do shift; done; echo rubbish > "$2"')
    with pytest.raises(compiled.BuildFailed, match=r"init\.so: "):
        await compiled.build(tmp_path)
    assert not list((tmp_path / "built").iterdir())


async def test_a_library_that_broke_later_stops_no_sandbox(tmp_path: Path) -> None:
    library = compiled.library_path(tmp_path)
    library.parent.mkdir()
    library.write_text("rubbish")
    serving = await opened(tmp_path)
    sandbox = await serving.create(HostImage())
    assert (await works(sandbox), loaded(sandbox)) == (True, False)
    await serving.close()


async def test_a_slow_compiler_is_not_waited_for_and_serves_later(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    compiler(f'while [ ! -e {go} ]; do sleep 0.02; done; exec {REAL} "$@"')
    monkeypatch.setattr(provider, "WAIT_S", 0.1)
    serving = await opened(tmp_path)
    early = await serving.create(HostImage())
    assert (await works(early), loaded(early)) == (True, False)
    go.touch()
    for _ in range(1000):  # Until the zygote was told, and its spare was used.
        late = await serving.create(HostImage())
        is_compiled = loaded(late)
        assert await works(late)
        await late.close()
        if is_compiled:
            break
    else:
        pytest.fail("no later sandbox has the compiled init")
    assert await works(early)
    await serving.close()


async def test_closing_ends_a_build(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("exec sleep 1000")
    monkeypatch.setattr(provider, "WAIT_S", 0.1)
    serving = await opened(tmp_path)
    await serving.close()
    assert not list((tmp_path / "built").iterdir())


async def test_a_compiler_that_never_ends_is_ended(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("sleep 1000")
    monkeypatch.setattr(compiled, "BUILD_TIMEOUT_S", 0.1)
    with pytest.raises(compiled.BuildFailed, match=r"took longer than 0\.1 s"):
        await compiled.build(tmp_path)


async def test_the_doctor_says_why_it_cannot_be_built(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("echo cannot find crt1.o >&2; exit 1")
    monkeypatch.setattr(probe, "default_state_dir", lambda: tmp_path)
    [feature] = [
        each for each in await asyncio.to_thread(probe.extras) if each.name == "compiled init"
    ]
    assert not feature.available
    assert "cannot find crt1.o" in feature.detail
