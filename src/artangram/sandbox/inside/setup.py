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

from artangram.sandbox.inside import init, linux, openfiles, population, root

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONTROL, UPPER, SCORE, PEAK, OOMS = 3, 4, 5, 6, 7
OUT_OF_THE_WAY = 16
_NO_PATHS: list[str] = []
_NO_FINDERS: list[Any] = []
_NO_HOOKS: list[Any] = []
_HELD = (sys.path, sys.meta_path, sys.path_hooks)


def live(
    plan: dict[str, Any],
    control: int,
    *,
    syscalls: linux.Filter | None,
    compiled: linux.CompiledInit | None = None,
    is_prepared: bool = False,
) -> None:
    """Never returns. A plan with a `directory` is for a plain process without namespaces."""
    step = "control groups"
    try:
        join_groups(plan["groups"])
        if plan["groups"]:
            linux.unshare(linux.CLONE_NEWCGROUP)
        step = "files"
        if plan["directory"]:
            _use_directory(plan, control)
        else:
            _enter_root(plan, control, is_prepared=is_prepared)
        control = CONTROL
        step = "identity"
        linux.reset_priority_on_fork()
        _become(plan)
        step = "filter"
        if syscalls is not None:
            syscalls.install()
        _no_more_imports()
        step = "service"
        if compiled is not None and not plan["directory"]:
            readings = _if_open(PEAK), _if_open(OOMS)
            compiled.serve(CONTROL, UPPER, SCORE, *readings, scores=init.scores(plan["score"]))
        _serve(plan)
    except BaseException as error:  # noqa: BLE001 - last words before the process ends
        _tell(step, error, control)
    finally:
        os._exit(70)


def _serve(plan: dict[str, Any]) -> None:
    sock = RawSocket(fileno=CONTROL)
    server = init.Init(
        sock,
        _population(plan),
        upper=UPPER,
        score_file=SCORE,
        score=plan["score"],
    )
    init.reply(sock, 0, init.READY)
    server.serve()


def _keep_only(control: int, plan: dict[str, Any]) -> None:
    """Close everything but the socket and, for `root.enter`, the image's user namespace."""
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


def make_groups(groups: list[tuple[str, dict[str, str], str]]) -> None:
    """Make and limit each group; done by the starter, so that the sandbox holds no pages for it."""
    for directory, settings, _ in groups:
        os.mkdir(directory)
        for name, value in settings.items():
            write_setting(f"{directory}/{name}", value)


def join_groups(groups: list[tuple[str, dict[str, str], str]], *, pid: str = "0") -> None:
    """A lone thread that moves itself waits for no other."""
    for directory, _, join_file in groups:
        if join_file:
            write_setting(f"{directory}/{join_file}", pid)


def in_child(work: Callable[[], None]) -> bool:
    """Do it in a child that shares directory, mounts and descriptors with us. Did it succeed?

    What it wrote to memory on the way ends with it: half of what a sandbox would hold.
    """
    pid = linux.clone(linux.CLONE_FS | linux.CLONE_FILES | linux.CLONE_VFORK)
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return not os.waitpid(pid, 0)[1]


def prepare(stage: str, *, own_proc: bool, network: bool) -> None:
    """What can be done in new namespaces before the sandbox's plan is known."""
    root.prepare(stage, own_proc=own_proc)
    if not network:
        _raise_loopback()


def _enter_root(plan: dict[str, Any], control: int, *, is_prepared: bool) -> None:
    if not in_child(lambda: _build_root(plan, control, is_prepared=is_prepared)):
        os._exit(70)


def _build_root(plan: dict[str, Any], control: int, *, is_prepared: bool) -> None:
    """Sort descriptors, build the root, set name and network."""
    try:
        _keep_only(control, plan)
        control = CONTROL
        _open_readings(plan)
        if not is_prepared:
            prepare(plan["stage"], own_proc=plan["own_proc"], network=plan["network"])
        _put(root.enter(plan), UPPER)
        _put(_open_score("/proc/1/oom_score_adj", plan["score"]), SCORE)
        linux.sethostname(plan["hostname"])
    except BaseException as error:
        _tell("files", error, control)
        raise


def _use_directory(plan: dict[str, Any], control: int) -> None:
    _keep_only(control, plan)
    _put(os.open(plan["directory"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), UPPER)
    _put(_open_score("/proc/self/oom_score_adj", plan["score"]), SCORE)
    os.chdir("/")


def _open_readings(plan: dict[str, Any]) -> None:
    """Where init sees what memory the sandbox took: no file of a control group is in its root."""
    if not plan["groups"] or not os.path.exists(plan["peak_file"]):
        return
    _put(os.open(plan["peak_file"], os.O_RDWR | os.O_CLOEXEC), PEAK)
    _put(os.open(plan["ooms_file"], os.O_RDONLY | os.O_CLOEXEC), OOMS)


def _if_open(fd: int) -> int:
    """-1 if it is not."""
    try:
        os.fstat(fd)
    except OSError:
        return -1
    return fd


def _put(fd: int, number: int) -> None:
    """Move a descriptor to where init looks for it."""
    if fd != number:
        os.dup2(fd, number, inheritable=False)
        os.close(fd)


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


def _open_score(path: str, score: int) -> int:
    """Where init sets how likely the out-of-memory killer takes it; at rest, `score`."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    os.pwrite(fd, b"%d" % score, 0)
    return fd


def own_score() -> int:
    """What this process and its clones begin with, unless that protects them."""
    fd = os.open("/proc/self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return max(0, int(os.read(fd, 16)))
    finally:
        os.close(fd)


def _become(plan: dict[str, Any]) -> None:
    """The sandbox's user, with no rights and no way to get any."""
    for kind, value in plan["rlimits"].items():
        _limit(kind, value)
    openfiles.allow_more_files()
    if plan["userns"]:
        linux.forbid_capabilities()  # without one, the zygote did it for all
    elif os.getuid() == 0:
        os.setgroups([])
        os.setresgid(plan["gid"], plan["gid"], plan["gid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        if plan["as_root"]:
            _become_zero(plan)
    linux.drop_capabilities()
    os.umask(0o022)
    if not plan["directory"]:
        # Only now: a change of user clears it. A plain process must live to end those below it.
        linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)


def _become_zero(plan: dict[str, Any]) -> None:
    """The same user under the number 0: a namespace in which it is the only one."""
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # Else its own files in /proc are root's.
    linux.unshare(linux.CLONE_NEWUSER)
    write_setting("/proc/self/setgroups", "deny")
    write_setting("/proc/self/uid_map", f"0 {plan['uid']} 1")
    write_setting("/proc/self/gid_map", f"0 {plan['gid']} 1")
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.forbid_capabilities()  # A new namespace begins with all of them.


def _limit(kind: int, value: int) -> None:
    """Set a limit, or the one that already holds here if that is lower."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        value = min(value, most)
    # Init has more open files than it lets commands have: see `openfiles.allow_more_files`.
    resource.setrlimit(kind, (value, most if kind == resource.RLIMIT_NOFILE else value))


def _no_more_imports() -> None:
    # Not by clearing: what that frees lies on pages that are shared until then.
    sys.path, sys.meta_path, sys.path_hooks = _NO_PATHS, _NO_FINDERS, _NO_HOOKS


def _tell(step: str, error: BaseException, control: int) -> None:
    code = error.errno if isinstance(error, OSError) and error.errno else 0
    sock = RawSocket(fileno=control)
    text = f"{step}: {type(error).__name__}: {error}".encode()[:4096]
    init.reply(sock, 0, init.FAILED, status=code, text=text)
