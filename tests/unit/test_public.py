"""The public interface: what it lists, what it costs to import, and where it can be imported."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Unpack, get_origin

import pytest

import artangram
from artangram import sync
from artangram.orchestrator.arguments import RunRequest, StartRequest
from artangram.orchestrator.options import CallOptions, RunOptions, ServiceOptions, StartOptions
from artangram.services.service import Service

PUBLIC = """
    ActionRecord ActionResult Amount Api ApiAnswer ApiSpec BadInput Broken CallFailed CallOptions
    Client ClusterStatus CommandResult DirectoryImage Draining EngineImage Explanation FileStat
    HostImage
    InfraFailed JobLimits
    Limits Outcome Output Overloaded ProcessHandle Refused RemoteFunction RunOptions SandboxError
    SandboxGone Service ServiceOptions ShellEnded ShellHandle ShellResult
    Snapshot SnapshotInfo StartOptions TarImage TrajectoryHandle TrajectoryOptions Unreachable
    between
    connect function local one_of sync
"""

HIDDEN = """
import importlib.abc, os, signal, socket, sys

MODULES = {"_posixsubprocess", "fcntl", "grp", "posixshmem", "pty", "pwd", "resource", "termios"}
# Only modules of ours: the standard library of this system uses its own.
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in MODULES and sys._getframe(4).f_globals["__name__"].startswith("artangram"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import asyncio, subprocess, multiprocessing
for name in MODULES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for module, names in {
    os: "sched_getaffinity sched_setaffinity pidfd_open memfd_create eventfd fork getuid prlimit",
    socket: "AF_UNIX SCM_RIGHTS send_fds recv_fds",
    signal: "SIGKILL SIGSTOP SIGCONT pidfd_send_signal",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_public_names_are_these() -> None:
    assert artangram.__all__ == PUBLIC.split()
    assert [name for name in artangram.__all__ if getattr(artangram, name, None) is None] == []
    assert dir(artangram) == sorted([*PUBLIC.split(), "__version__"])


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Scheduler'"):
        _ = artangram.Scheduler  # type: ignore[attr-defined]


def test_importing_it_imports_nothing_else() -> None:
    code = "import sys, artangram; print([m for m in sys.modules if m.startswith('artangram')])"
    assert python(code).stdout == "['artangram']\n"


@pytest.mark.parametrize(
    "use",
    [
        "import artangram.sync",
        "import artangram; artangram.connect",
        "import artangram; artangram.sync.connect",
        "from artangram import Client, TrajectoryHandle, between, BadInput, ActionResult, Limits",
    ],
)
def test_a_client_imports_where_linux_is_absent(use: str) -> None:
    done = python(HIDDEN + use)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_hidden_would_be_missed() -> None:
    done = python(HIDDEN + "import artangram.sandbox.container.provider")
    assert "No module named 'resource'" in done.stderr


@pytest.mark.parametrize("use", ["artangram.connect", "artangram.sync.connect('http://a')"])
def test_a_missing_http_client_is_named_with_its_extra(use: str) -> None:
    done = python(f"import sys; sys.modules['aiohttp'] = None; import artangram; {use}")
    said = "artangram.connect needs aiohttp; pip install 'artangram[client]'"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {said}"


def callables() -> Iterator[tuple[str, Any]]:
    """Every function and public method that users see."""
    for owner in (artangram, sync):
        for name in owner.__all__:
            found = getattr(owner, name)
            if inspect.isfunction(found):
                yield name, found
            if inspect.isclass(found):
                public = {k: v for k, v in vars(found).items() if not k.startswith("_")}
                yield from ((f"{name}.{k}", v) for k, v in public.items() if inspect.isfunction(v))


def test_every_keyword_has_a_name_and_a_type() -> None:
    open_ended = [
        name
        for name, function in callables()
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.VAR_KEYWORD and get_origin(one.annotation) is not Unpack
    ]
    assert open_ended == []


def test_everything_public_is_explained() -> None:
    """A property says what it is by its name; a function or class does so in a docstring."""
    assert [name for name, function in callables() if not inspect.getdoc(function)] == []


@pytest.mark.parametrize(
    ("options", "record", "own"),
    [
        (RunOptions, RunRequest, {"trajectory", "argv"}),
        (StartOptions, StartRequest, {"trajectory", "argv"}),
        (ServiceOptions, Service, {"id", "loader"}),
    ],
)
def test_options_are_the_fields_of_their_record(options: Any, record: Any, own: set[str]) -> None:
    assert set(options.__annotations__) == set(record.__struct_fields__) - own


def test_a_local_cluster_takes_every_option_of_a_cluster() -> None:
    from artangram.orchestrator.callbackends import ClusterOptions

    taken = inspect.signature(artangram.local).parameters
    assert set(ClusterOptions.__struct_fields__) - taken.keys() == set()


def test_options_of_calls_are_fields_of_requests() -> None:
    from artangram.orchestrator.calling import CallRequest

    fields = set(CallRequest.__struct_fields__) - {"call", "repeatable"}
    assert set(CallOptions.__annotations__) == fields
