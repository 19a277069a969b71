"""From a fresh clone of the zygote to the init of a sandbox, one irreversible step after another.

The order matters: control groups and mounts need rights, then the rights go, then the filter
comes, and only then is the sandbox announced. A failure at any step is told and ends the process.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
from _socket import AF_INET, SOCK_CLOEXEC, SOCK_DGRAM
from _socket import socket as RawSocket

from artangram.sandbox.inside import init, linux, population, root

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from typing import Any

CONTROL, UPPER = 3, 4
OUT_OF_THE_WAY = 16


def live(plan: dict[str, Any], control: int, *, syscalls: linux.Filter | None) -> None:
    """Never returns. A plan with a `directory` is for a plain process without namespaces."""
    step = "descriptors"
    try:
        _keep_only(control, plan)
        sock = RawSocket(fileno=CONTROL)
        step = "control groups"
        join_groups(plan["groups"])
        if plan["groups"]:
            linux.unshare(linux.CLONE_NEWCGROUP)
        step = "files"
        if plan["directory"]:
            _use_directory(plan["directory"])
        else:
            _enter_root(plan)
        step = "identity"
        score_file, score = _open_score()
        linux.reset_priority_on_fork()
        _become(plan)
        step = "filter"
        if syscalls is not None:
            syscalls.install()
        _no_more_imports()
        step = "service"
        server = init.Init(
            sock,
            _population(plan),
            upper=UPPER,
            score_file=score_file,
            score=score,
            steers=not plan["directory"],
        )
        init.reply(sock, 0, init.READY)
        server.serve()
    except BaseException as error:  # noqa: BLE001 - last words before the process ends
        _tell(step, error)
    finally:
        os._exit(70)


def _keep_only(control: int, plan: dict[str, Any]) -> None:
    """Close everything but the socket and, for `root.enter`, who gets the image's files."""
    other = plan["users"] if plan["own"] else control
    # Out of the way first: either may sit on the number of the other.
    control = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    other = fcntl.fcntl(other, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    os.dup2(control, CONTROL, inheritable=False)
    os.dup2(other, UPPER, inheritable=False)
    plan["users"] = UPPER
    os.closerange(UPPER + 1, 1 << 30)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)


def join_groups(groups: list[tuple[str, dict[str, str], str]], *, who: str = "0") -> None:
    """Make and limit each group, and join it. A lone thread that moves itself waits for no one."""
    for directory, settings, join_file in groups:
        os.mkdir(directory)
        for name, value in settings.items():
            write_setting(f"{directory}/{name}", value)
        if join_file:
            write_setting(f"{directory}/{join_file}", who)


def _enter_root(plan: dict[str, Any]) -> None:
    """Build the root, name and network in a child that shares them with us, and ends.

    What it wrote to memory on the way goes with it: a third of what a sandbox would hold.
    """
    pid = linux.clone(linux.CLONE_FS | linux.CLONE_FILES | linux.CLONE_VFORK)
    if pid == 0:
        try:
            upper = root.enter(plan)
            os.dup2(upper, UPPER, inheritable=False)
            os.close(upper)
            linux.sethostname(plan["hostname"])
            if not plan["network"]:
                _raise_loopback()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - last words before the process ends
            _tell("files", error)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        os._exit(70)


def _use_directory(directory: str) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.dup2(held, UPPER, inheritable=False)
    os.close(held)
    os.chdir("/")


def _population(plan: dict[str, Any]) -> population.Population:
    if not plan["directory"]:
        return population.Namespace()
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    return population.Descendants()


def write_setting(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _raise_loopback() -> None:
    sock = RawSocket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC)
    linux.raise_loopback(sock.fileno())
    sock.close()


def _open_score() -> tuple[int, int]:
    """Where PID 1 sets how likely the out-of-memory killer takes it, and its value at rest."""
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    score = max(0, int(os.pread(fd, 16, 0)))
    os.pwrite(fd, b"%d" % score, 0)
    return fd, score


def _become(plan: dict[str, Any]) -> None:
    """The sandbox's user, with no rights and no way to get any."""
    for kind, value in plan["rlimits"].items():
        resource.setrlimit(kind, (value, value))
    if plan["userns"]:
        linux.forbid_capabilities()  # without one, the zygote did it for all
    elif os.getuid() == 0:
        os.setgroups([])
        os.setresgid(plan["gid"], plan["gid"], plan["gid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    linux.drop_capabilities()
    os.umask(0o022)
    if not plan["directory"]:
        # Only now: a change of user clears it. A plain process must live to end those below it.
        linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)


def _no_more_imports() -> None:
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()


def _tell(step: str, error: BaseException) -> None:
    code = error.errno if isinstance(error, OSError) and error.errno else 0
    sock = RawSocket(fileno=CONTROL)
    text = f"{step}: {type(error).__name__}: {error}".encode()[:4096]
    init.reply(sock, 0, init.FAILED, status=code, text=text)
