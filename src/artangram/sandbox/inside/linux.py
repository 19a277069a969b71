"""System calls that Python does not offer, by ctypes, each raising `OSError` on failure.

Only numbers and thin wrappers: no decision is taken here.
"""

# ruff: noqa: SIM105 - `contextlib` would be imported into every sandbox

from __future__ import annotations

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
_libc.syscall.restype = ctypes.c_long

# Made once, before any fork: what a sandbox makes for itself, it holds for itself.
_ZERO = ctypes.c_ulong(0)
_FILTER_MODE = ctypes.c_ulong(2)
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()

MACHINE = os.uname().machine

SIGINT, SIGKILL, SIGPIPE, SIGCHLD, SIGCONT, SIGSTOP, SIGXFSZ = 2, 9, 13, 17, 18, 19, 25
# glibc's sigset_t has 1024 bits; only the first word is ever used.
_CHILD_SIGNAL = (ctypes.c_uint64 * 16)(1 << (SIGCHLD - 1))
_NO_SIGNAL = (ctypes.c_uint64 * 16)()

CLONE_FS = 0x00000200
CLONE_FILES = 0x00000400
CLONE_VFORK = 0x00004000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEW_ANY = 0x7E020000 | 0x80  # the last is CLONE_NEWTIME

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

TIOCSCTTY, TIOCSWINSZ, TIOCSPTLCK, TIOCGPTPEER = 0x540E, 0x5414, 0x40045431, 0x5441

# The same on every machine.
OPEN_TREE, MOVE_MOUNT, FSCONFIG, FSPICK, OPENAT2, MOUNT_SETATTR = 428, 429, 431, 433, 437, 442
FSCONFIG_SET_STRING, FSCONFIG_RECONFIGURE = 1, 7
FSPICK_CLOEXEC, FSPICK_EMPTY_PATH = 1, 8
RESOLVE_NO_MAGICLINKS = 2
RESOLVE_NO_SYMLINKS = 4
OPEN_TREE_CLONE = 1
MOUNT_ATTR_IDMAP = 0x00100000
MOVE_FROM_EMPTY = 4
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

WALL = 0x40000000
URGENT = -15
"""For processes that only ever react: they must run at once, even beside a fork bomb."""
SFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000

_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {"clone": 56, "capset": 126, "pivot_root": 155, "unshare": 272, "socket": 41},
    "aarch64": {"clone": 220, "capset": 91, "pivot_root": 41, "unshare": 97, "socket": 198},
}
NUMBERS = _NUMBERS.get(MACHINE, {})


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


def syncfs(fd: int) -> None:
    """Return when the disk has everything that was written to its file system."""
    _check(_libc.syncfs(fd), "syncfs")


def mount(source: str, target: str, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None
    )
    _check(result, f"mount {kind or source} on {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def bind(source: str, target: str, *, flags: int = 0) -> None:
    """Show `source`, with what is mounted below it, at `target`; `flags` hold for all of that."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if not flags:
        return
    wanted = _MountAttributes(flags, 0, 0, 0)  # the same bits there
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    how = AT_FDCWD, target.encode(), AT_RECURSIVE, ctypes.byref(wanted), size
    done = _libc.syscall(MOUNT_SETATTR, *how)
    if done == 0 or ctypes.get_errno() != errno.ENOSYS:
        _check(done, f"restrict {target}")
        return
    # Before Linux 5.12 flags are for one mount: what is mounted below stays out of sight.
    detach(target)
    mount(source, target, flags=MS_BIND)
    mount(source, target, flags=MS_BIND | MS_REMOUNT | flags)


def bind_as_users(source: str, target: str, users: int) -> None:
    """Show `source` at `target` with its owners translated by the user namespace `users`."""
    tree = _check(_libc.syscall(OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE), source)
    try:
        wanted = _MountAttributes(MOUNT_ATTR_IDMAP, 0, 0, users)
        size = ctypes.sizeof(wanted)
        done = _libc.syscall(
            MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(wanted), ctypes.c_size_t(size)
        )
        _check(done, f"give away the files of {source} (own=False leaves them root's)")
        done = _libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_FROM_EMPTY)
        _check(done, f"mount on {target}")
    finally:
        os.close(tree)


def reconfigure(root: int, name: bytes, value: bytes) -> None:
    """Change a setting of the file system whose root is open as `root`, wherever it is mounted."""
    how = _check(_libc.syscall(FSPICK, root, b"", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH), "fspick")
    try:
        _check(_libc.syscall(FSCONFIG, how, FSCONFIG_SET_STRING, name, value, 0), "fsconfig")
        _check(_libc.syscall(FSCONFIG, how, FSCONFIG_RECONFIGURE, None, None, 0), "reconfigure")
    finally:
        os.close(how)


def hold(path: str, flags: int = os.O_PATH) -> int:
    """Open a real path: one that has become a link anywhere is an error."""
    try:
        return open_by_name(os.fsencode(path), flags | os.O_CLOEXEC, resolve=RESOLVE_NO_SYMLINKS)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None


def open_by_name(
    path: bytes, flags: int, *, mode: int = 0, resolve: int = RESOLVE_NO_MAGICLINKS
) -> int:
    """Open a file, but through no link of /proc to what a process holds open."""
    how = (ctypes.c_uint64 * 3)(flags, mode, resolve)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd = _libc.syscall(OPENAT2, AT_FDCWD, path, how, size)
    if fd < 0 and ctypes.get_errno() == errno.ENOSYS:  # before Linux 5.6
        return os.open(path, flags, mode)
    return _check(fd, "open")


def detach(target: str) -> None:
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root_here() -> None:
    """Make the current directory the root and drop the old root."""
    _check(_libc.syscall(NUMBERS["pivot_root"], b".", b"."), "pivot_root")
    detach(".")
    os.chdir("/")


def clone(flags: int) -> int:
    """Fork, with new namespaces for instance: 0 in the child. Only for a single thread."""
    return _check(_libc.syscall(NUMBERS["clone"], flags | SIGCHLD, 0, 0, 0, 0), "clone")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def prctl(option: int, value: int, extra: int = 0) -> None:
    result = _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(extra), _ZERO, _ZERO)
    _check(result, f"prctl {option}")


def raise_priority() -> None:
    """Ask for a core before others get it; without the right to, nothing happens."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)
    except PermissionError:
        pass


def reset_priority_on_fork() -> None:
    """What this process starts from now on begins with the usual priority."""
    os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


def sethostname(name: str) -> None:
    _check(_libc.sethostname(name.encode(), len(name.encode())), "sethostname")


def ignore_interrupts() -> None:
    """Ctrl-C is for the caller. Not by `signal`, which would bring `enum` along."""
    _libc.signal(SIGINT, ctypes.c_void_p(1))


def child_signals() -> int:
    """Block SIGCHLD and return a descriptor that becomes readable when one is pending."""
    _check(_libc.sigprocmask(0, _CHILD_SIGNAL, None), "sigprocmask")
    return _check(_libc.signalfd(-1, _CHILD_SIGNAL, SFD_NONBLOCK_CLOEXEC), "signalfd")


def usual_signals(*ignored: int) -> None:
    """Hold none back, and let those do again what they usually do."""
    _check(_libc.sigprocmask(2, _NO_SIGNAL, None), "sigprocmask")
    for number in ignored:
        _libc.signal(number, ctypes.c_void_p(0))


class _Setting(ctypes.Structure):
    """`struct setting` of init.c."""

    _fields_ = (
        ("sock", ctypes.c_int),
        ("children", ctypes.c_int),
        ("upper", ctypes.c_int),
        ("score_file", ctypes.c_int),
        ("peak_file", ctypes.c_int),
        ("ooms_file", ctypes.c_int),
        ("sheltered", ctypes.c_char * 8),
        ("exposed", ctypes.c_char * 8),
    )


class CompiledInit:
    """The loop of init as a library, loaded before anything is cloned."""

    def __init__(self, path: str) -> None:
        self._serve = ctypes.CDLL(path).serve

    def serve(self, sock: int, *files: int, scores: tuple[bytes, bytes]) -> None:
        """Never returns. `files` as in `struct setting`; they stay open for it."""
        children = child_signals()
        setting = _Setting(sock, children, *files, *scores)
        self._serve(ctypes.byref(setting))


def compiled_init(path: str) -> CompiledInit | None:
    """The library at `path`; none if that is empty or cannot be loaded: then Python serves."""
    try:
        return CompiledInit(path) if path else None
    except OSError as error:
        os.write(2, f"artangram: Python serves in sandboxes, not the C init: {error}\n".encode())
        return None


def forbid_capabilities() -> None:
    """Take every capability out of the bounding set: no program started later can have one."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: the kernel knows none beyond this one
                raise
            return


def drop_capabilities() -> None:
    """Give up every capability this process holds."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    result = _libc.syscall(NUMBERS["capset"], _CAPABILITY_HEADER, _NO_CAPABILITIES)
    _check(result, "capset")


class Filter(ctypes.Structure):
    """A seccomp program, ready to be installed: `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    def __init__(self, program: bytes) -> None:
        self._kept = ctypes.create_string_buffer(program, len(program))
        super().__init__(len(program) // 8, ctypes.addressof(self._kept))

    def install(self) -> None:
        """On this thread and everything it starts, for ever."""
        result = _libc.prctl(PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(self), _ZERO, _ZERO)
        _check(result, "seccomp")


def raise_loopback(sock_fd: int) -> None:
    """Bring `lo` up in the current network namespace, through any inet socket."""
    flags = 0x1 | 0x40  # IFF_UP | IFF_RUNNING
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + flags.to_bytes(2, "little"), 40)
    _check(_libc.ioctl(sock_fd, 0x8914, request), "lo up")
