"""Other ways to run a command on this machine, made ready for `bench sandbox`.

- A peer that is not installed, or does not start here, is named with its reason and left out.
- Whatever a peer starts ends with its block; containers have the measured program, its libraries
  and nothing else.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic
from typing import Any

from msgspec import Struct

PROGRAM = "/usr/bin/true"
SLEEP = "/usr/bin/sleep"
STARTS_WITHIN_S = 30.0

Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One thing to be timed; `tidy` follows it untimed.

    What answers with a float has timed itself, in milliseconds; one with a `rate` counts itself
    how often it ran in a second, over the given seconds.
    """

    name: str
    run: Work
    tidy: Work | None = None
    rate: Callable[[float], Awaitable[float]] | None = None


class Missing(Struct, frozen=True, kw_only=True):
    """A peer that was not measured."""

    name: str
    why: str
    how: str


class NotHere(Exception):
    """A peer is not installed, or does not start on this machine."""


Opener = Callable[[Path], AbstractAsyncContextManager[list[Contender]]]


async def enter_peers(stack: AsyncExitStack) -> tuple[list[Contender], list[Missing]]:
    """Everything that works here, until `stack` closes; and what does not."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="artangram-bench-")))
    root = await asyncio.to_thread(_make_root, folder / "root")
    contenders: list[Contender] = []
    missing: list[Missing] = []
    for name, (opener, how) in _PEERS.items():
        try:
            contenders += await stack.enter_async_context(opener(root))
        except (NotHere, OSError, subprocess.SubprocessError) as error:
            missing.append(Missing(name=name, why=_why(error), how=how))
    return contenders, missing


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    return (said.decode(errors="replace").strip() if said else "") or str(error)


@asynccontextmanager
async def podman(root: Path) -> AsyncIterator[list[Contender]]:
    """The command line of podman: a command in a running container, and a new container."""
    call, name = _program("podman"), f"artangram-bench-{os.getpid()}"
    await call("import", str(_packed(root)), name)
    limits = [f"--ulimit=nproc={_ULIMIT}", f"--ulimit=nofile={_ULIMIT}", "--network=none"]
    start = ["run", "-d", *_runtime(), *limits]
    try:
        await call(*start, f"--name={name}", name, SLEEP, "86400")
        new = [*start, f"--name={name}-new", name, SLEEP, "86400"]
        yield [
            Contender(name="podman exec", run=partial(call, "exec", name, PROGRAM)),
            Contender(
                name="podman run -d",
                run=partial(call, *new),
                tidy=partial(call, "rm", "-f", "-t0", f"{name}-new"),
            ),
        ]
    finally:
        await call("rm", "-f", "-t0", "--ignore", name, f"{name}-new")
        await call("rmi", "-f", name)


@asynccontextmanager
async def docker_sdk(root: Path) -> AsyncIterator[list[Contender]]:
    """The docker SDK for Python, speaking to a service of podman."""
    docker, call = _module("docker"), _program("podman")
    name = f"artangram-bench-sdk-{os.getpid()}"
    address = f"unix://{root.parent / 'podman.sock'}"
    service = subprocess.Popen(  # noqa: ASYNC220 - does not block
        ["podman", "system", "service", "--time", "0", address], stderr=subprocess.DEVNULL
    )
    try:
        await _until(lambda: (root.parent / "podman.sock").exists(), service)
        client = docker.DockerClient(base_url=address)
        limits = [f"--ulimit=nproc={_ULIMIT}", f"--ulimit=nofile={_ULIMIT}", "--network=none"]
        named = [f"--name={name}", "--rootfs", str(root)]
        await call("run", "-d", *_runtime(), *limits, *named, SLEEP, "86400")
        container = await asyncio.to_thread(client.containers.get, name)
        yield [
            Contender(
                name="docker SDK exec",
                run=partial(asyncio.to_thread, container.exec_run, [PROGRAM]),
            )
        ]
        client.close()
    finally:
        await call("rm", "-f", "-t0", "--ignore", name)
        service.terminate()
        await asyncio.to_thread(service.wait)
        end_monitors(name)


def end_monitors(container: str) -> None:
    """End what an engine leaves of a container that is gone.

    After each command that came through its service a process waits for five minutes to tidy up,
    and then takes a core from whatever is measured by that time.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            program, *words = (entry / "cmdline").read_bytes().split(b"\0")
            if program.endswith(b"conmon") and container.encode() in words:
                os.kill(int(entry.name), SIGKILL)


@asynccontextmanager
async def runc(root: Path) -> AsyncIterator[list[Contender]]:
    """The runtime below the engines, called by hand."""
    call, name = _program("runc"), f"artangram-bench-{os.getpid()}"
    bundle = root.parent / "bundle"
    bundle.mkdir()
    await call("spec", "--bundle", str(bundle))
    spec = json.loads((bundle / "config.json").read_text())
    spec["process"] |= {"terminal": False, "args": [SLEEP, "86400"], "rlimits": []}
    spec["root"] = {"path": str(root), "readonly": True}
    (bundle / "config.json").write_text(json.dumps(spec))
    try:
        await call("run", "-d", "--bundle", str(bundle), name)
        yield [Contender(name="runc exec", run=partial(call, "exec", name, PROGRAM))]
    finally:
        await call("delete", "-f", name)


@asynccontextmanager
async def swe_rex(root: Path) -> AsyncIterator[list[Contender]]:
    """The server and client of SWE-ReX, without a container around the server."""
    remote, records = _module("swerex.runtime.remote"), _module("swerex.runtime.abstract")
    token, port = secrets.token_hex(), _free_port()
    server = subprocess.Popen(  # noqa: ASYNC220 - does not block
        [sys.executable, "-m", "swerex.server", "--port", str(port), "--auth-token", token],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await _until(partial(_answers, port), server)
        client = remote.RemoteRuntime(host="http://127.0.0.1", port=port, auth_token=token)
        await client.create_session(records.CreateBashSessionRequest())
        action = records.BashAction(command=PROGRAM)
        command = records.Command(command=[PROGRAM])
        yield [
            Contender(name="SWE-ReX run_in_session", run=lambda: client.run_in_session(action)),
            Contender(name="SWE-ReX execute", run=lambda: client.execute(command)),
        ]
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait)


_ENGINE = "apt-get install podman runc"
_PEERS: dict[str, tuple[Opener, str]] = {
    "podman": (podman, _ENGINE),
    "docker SDK": (docker_sdk, f"{_ENGINE}; pip install docker"),
    "runc": (runc, _ENGINE),
    "SWE-ReX": (swe_rex, "pip install swe-rex"),
}

_ULIMIT = "1024:1024"
"""Below what small machines let an engine give."""


def _runtime() -> list[str]:
    """Engines prefer runtimes that need more of the machine than runc does."""
    return ["--runtime=runc"] if shutil.which("runc") else []


def _program(name: str) -> Callable[..., Awaitable[object]]:
    """Calls a program and raises what it complains about."""
    path = shutil.which(name)
    if path is None:
        raise NotHere(f"there is no program {name}")

    def call(*arguments: str) -> Awaitable[object]:
        argv = [path, *arguments]
        return asyncio.to_thread(_called, argv)

    return call


def _called(argv: list[str]) -> None:
    # Not a pipe: what a detached container inherits would keep it open.
    with TemporaryFile() as said:
        quiet = subprocess.DEVNULL
        code = subprocess.run(argv, stdin=quiet, stdout=quiet, stderr=said).returncode
        if code:
            said.seek(0)
            raise subprocess.CalledProcessError(code, argv, stderr=said.read()[-500:])


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise NotHere(f"the package of {name} is not installed") from None


def _make_root(root: Path) -> Path:
    """A root file system with the programs that are run and what they load."""
    for program in (PROGRAM, SLEEP):
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        libraries = [word for word in loaded.stdout.split() if word.startswith("/")]
        for source in (program, *libraries):
            target = root / source.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for folder in ("proc", "sys", "dev", "etc", "run", "tmp"):
        (root / folder).mkdir(exist_ok=True)
    return root


def _packed(root: Path) -> Path:
    return Path(shutil.make_archive(str(root.parent / "root-image"), "tar", root))


async def _until(is_ready: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    gives_up_at = monotonic() + STARTS_WITHIN_S
    while not is_ready():
        if process.poll() is not None:
            raise NotHere(f"{process.args!r} ended with {process.returncode}")
        if monotonic() > gives_up_at:
            raise NotHere(f"{process.args!r} did not answer within {STARTS_WITHIN_S:g} s")
        await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
