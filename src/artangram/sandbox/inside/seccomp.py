"""The system call filter of every sandbox, as classic BPF.

- Denied: whatever is not namespaced, changes the machine, reaches other processes' memory, or
  opens new namespaces. Everything else is allowed: programs come as they are.
- `clone3` answers ENOSYS, so that libc uses `clone`, whose flags a filter can see.
- Sockets only of the families a network namespace covers; vsock is not one of them. Nor of
  protocols, nor with questions, for which the kernel would have the machine load a module.
- No program may touch PID 1: its limits, its scheduling, its cores.
- `sync` does nothing: files inside are in memory, and it would wait for the machine's disks.
- No `io_setup`: the machine has a number of such requests for all, and one program could take them.
- No inotify: the kernel takes milliseconds to end each instance, so a program with a hundred would
  outlive its deadline by seconds. Programs that can poll do so.
- A call that is newer than this list does not exist.
"""

from __future__ import annotations

import struct

from artangram.sandbox.inside import linux

ALLOW = 0x7FFF0000
KILL = 0x80000000
DONE = 0x00050000  # it answers 0, as if it had been done
EPERM = 0x00050000 | 1
EINVAL = 0x00050000 | 22
ENOSYS = 0x00050000 | 38
EPROTONOSUPPORT = 0x00050000 | 93
EAFNOSUPPORT = 0x00050000 | 97

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AND, _SHIFT_LEFT, _OR_OTHER, _TO_OTHER = 0x54, 0x64, 0x4C, 0x07
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16

SOCKET_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink
NETLINK, ROUTES = 16, 0  # and interfaces; other protocols tell of, or ask, the whole machine
STREAM, DATAGRAM, RAW = 1, 2, 3
TCP, UDP, PINGS = 6, 17, {2: 1, 10: 58}
MODULE_QUESTIONS = (0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1, 0x89A2, 0x89A3)
"""Of bridges and virtual networks, by `ioctl`."""
NEWEST = 469
CLONE3 = 435
ABSENT = ("io_setup", "inotify_init", "inotify_init1")
"""Calls that answer ENOSYS: programs know what to do on a kernel without them."""

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# fmt: off
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "quotactl_fd": 443, "memfd_secret": 447, "process_mrelease": 448, "statmount": 457,
    "listmount": 458, "open_tree_attr": 467,
}
DENIED: dict[str, dict[str, int]] = {
    "x86_64": _COMMON | {
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308,
        "unshare": 272, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
        "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
        "kexec_load": 246, "kexec_file_load": 320, "create_module": 174, "init_module": 175,
        "finit_module": 313, "delete_module": 176, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "userfaultfd": 323, "swapon": 167, "swapoff": 168,
        "reboot": 169, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "quotactl": 179,
        "move_pages": 279, "migrate_pages": 256, "mbind": 237, "set_mempolicy": 238,
        "acct": 163, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159,
        "clock_adjtime": 305, "syslog": 103, "kcmp": 312,
        "vhangup": 153, "personality": 135, "lookup_dcookie": 212, "uselib": 134, "ustat": 136,
        "sysfs": 139, "nfsservctl": 180, "fanotify_init": 300, "sethostname": 170,
        "setdomainname": 171,
    },
    "aarch64": _COMMON | {
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "setns": 268,
        "unshare": 97, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
        "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
        "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273,
        "delete_module": 106, "name_to_handle_at": 264, "open_by_handle_at": 265,
        "userfaultfd": 282, "swapon": 224, "swapoff": 225, "reboot": 142, "quotactl": 60,
        "move_pages": 239, "migrate_pages": 238, "mbind": 235, "set_mempolicy": 237,
        "acct": 89, "settimeofday": 170, "clock_settime": 112, "adjtimex": 171,
        "clock_adjtime": 266, "syslog": 116, "kcmp": 272, "vhangup": 58,
        "personality": 92, "lookup_dcookie": 18, "nfsservctl": 42, "fanotify_init": 262,
        "sethostname": 161, "setdomainname": 162,
    },
}
# Calls that name a process; the position of the argument that does.
NAMES_PROCESS: dict[str, tuple[tuple[int, int], ...]] = {
    "x86_64": ((302, 0), (203, 0), (144, 0), (142, 0), (314, 0), (141, 1), (251, 1)),
    "aarch64": ((261, 0), (122, 0), (119, 0), (118, 0), (274, 0), (140, 1), (30, 1)),
}
# Calls that make nodes; the position of the mode. Pipes and sockets may be made, devices not.
MAKES_NODE: dict[str, tuple[tuple[int, int], ...]] = {
    "x86_64": ((133, 1), (259, 2)),
    "aarch64": ((33, 2),),
}
# Calls that ask for something by the value, or by any bit, of one argument.
HUGE_PAGES = {"mmap": 0x40000, "memfd_create": 4, "shmget": 0o4000}
"""No control group counts these as memory, and the machine has few."""
SET_LEASE, SCHED_CORE, LIMIT_CORE = 1024, 62, 4
WAIT_KILLABLE = 32
DEVICE_BIT = 0x2000  # in the mode of character and block devices, and of nothing else makeable
_OTHER: dict[str, dict[str, int]] = {
    "x86_64": {
        "clone": 56, "socket": 41, "socketpair": 53, "setaffinity": 203, "setpriority": 141,
        "ioprio_set": 251, "sync": 162, "syncfs": 306, "fcntl": 72, "prctl": 157, "mmap": 9,
        "memfd_create": 319, "shmget": 29, "setrlimit": 160, "prlimit64": 302,
        "ioctl": 16, "io_setup": 206, "seccomp": 317, "inotify_init": 253, "inotify_init1": 294,
    },
    "aarch64": {
        "clone": 220, "socket": 198, "socketpair": 199, "setaffinity": 122, "setpriority": 140,
        "ioprio_set": 30, "sync": 81, "syncfs": 267, "fcntl": 25, "prctl": 167, "mmap": 222,
        "memfd_create": 279, "shmget": 194, "setrlimit": 164, "prlimit64": 261,
        "ioctl": 29, "io_setup": 0, "seccomp": 277, "inotify_init1": 26,
    },
}
# fmt: on

Instruction = tuple[int, int, int, int]


def program(*, own_affinity: bool, machine: str = linux.MACHINE) -> bytes:
    """The filter for `machine`. Without `own_affinity`, no program may choose cores."""
    denied = sorted(DENIED[machine].values())
    other = _OTHER[machine]
    if not own_affinity:
        denied.append(other["setaffinity"])
    code = _prologue(machine)
    for number in denied:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, EPERM)]
    absent = (other[name] for name in ABSENT if name in other)
    for number in (CLONE3, *absent):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, ENOSYS)]
    code += _if_called(other["clone"], [*_argument(0), (_ANY_BIT, 0, 1, linux.CLONE_NEW_ANY)])
    for number in (other["socket"], other["socketpair"]):
        code += _family_check(number)
    code += _protocol_checks(other["socket"])
    for question in MODULE_QUESTIONS:
        code += _if_called(other["ioctl"], [*_argument(1), (_EQUAL, 0, 1, question)])
    for number, position in NAMES_PROCESS[machine]:
        code += _if_called(number, [*_argument(position), (_EQUAL, 0, 1, 1)])
    for number, position in MAKES_NODE[machine]:
        code += _if_called(number, [*_argument(position), (_ANY_BIT, 0, 1, DEVICE_BIT)])
    # By user or by group would reach PID 1 too: only single processes may be reniced.
    code += _if_called(other["setpriority"], [*_argument(0), (_AT_LEAST, 0, 1, 1)])
    code += _if_called(other["ioprio_set"], [*_argument(0), (_AT_LEAST, 0, 1, 2)])
    code += _beyond_the_sandbox(other)
    code.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _beyond_the_sandbox(other: dict[str, int]) -> list[Instruction]:
    """What would hold up init or the machine, though each call alone looks harmless."""
    code: list[Instruction] = []
    for name in ("sync", "syncfs"):
        code += [(_EQUAL, 0, 1, other[name]), (_RETURN, 0, 0, DONE)]
    for name, position in (("mmap", 3), ("memfd_create", 1), ("shmget", 2)):
        test = [*_argument(position), (_ANY_BIT, 0, 1, HUGE_PAGES[name])]
        code += _if_called(other[name], test)
    # Opening a leased file waits, also in init; core scheduling makes a core's sibling wait.
    code += _if_called(other["fcntl"], [*_argument(1), (_EQUAL, 0, 1, SET_LEASE)])
    code += _if_called(other["prctl"], [*_argument(0), (_EQUAL, 0, 1, SCHED_CORE)])
    # A process that waits like this for its own filter's answer can be killed, but not frozen.
    test = [*_argument(1), (_ANY_BIT, 0, 1, WAIT_KILLABLE)]
    code += _if_called(other["seccomp"], test, answer=EINVAL)
    # Of a core to be piped to a program of the machine, only the limit of 1 byte prevents that.
    test = [*_argument(0), (_EQUAL, 0, 1, LIMIT_CORE)]
    code += _if_called(other["setrlimit"], test, answer=DONE)
    where = _ARGS_AT + 8 * 2  # of the new limits; 0 to ask only
    test = [
        *_argument(1), (_EQUAL, 0, 5, LIMIT_CORE),
        (_LOAD, 0, 0, where), (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, where + 4), (_EQUAL, 1, 0, 0),
    ]  # fmt: skip
    return code + _if_called(other["prlimit64"], test, answer=DONE)


def _prologue(machine: str) -> list[Instruction]:
    """Kill calls of a foreign architecture; refuse x32, whose numbers would dodge the list."""
    return [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, ARCH[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, 0x40000000),
        (_RETURN, 0, 0, EPERM),
        (_AT_LEAST, 0, 1, NEWEST + 1),
        (_RETURN, 0, 0, ENOSYS),
    ]


def _argument(position: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, _ARGS_AT + 8 * position)]


def _if_called(number: int, test: list[Instruction], *, answer: int = EPERM) -> list[Instruction]:
    """Refuse `number` when `test`, whose last jump skips one if false, holds."""
    body = [*test, (_RETURN, 0, 0, answer), (_LOAD, 0, 0, _NUMBER_AT)]
    return [(_EQUAL, 0, len(body), number), *body]


def _family_check(number: int) -> list[Instruction]:
    """Refuse sockets whose first argument is no allowed family."""
    body: list[Instruction] = [*_argument(0)]
    for left, family in zip(range(len(SOCKET_FAMILIES) - 1, -1, -1), SOCKET_FAMILIES, strict=True):
        body.append((_EQUAL, left + 1, 0, family))
    body += [(_RETURN, 0, 0, EAFNOSUPPORT), (_LOAD, 0, 0, _NUMBER_AT)]
    return [(_EQUAL, 0, len(body), number), *body]


def _protocol_checks(number: int) -> list[Instruction]:
    """Refuse sockets for which the kernel would look for a module, or reach beyond the sandbox."""
    test: list[Instruction] = [*_argument(0), (_EQUAL, 0, 3, NETLINK)]
    test += [*_argument(2), (_EQUAL, 1, 0, ROUTES)]
    code = _if_called(number, test, answer=EPROTONOSUPPORT)
    for family, ping in PINGS.items():
        streams = [STREAM << 16 | protocol for protocol in (0, TCP)]
        known = streams + [DATAGRAM << 16 | protocol for protocol in (0, UDP, ping)]
        # The kind without its flags, and the protocol, in one number.
        body = [*_argument(1), (_AND, 0, 0, 0xF), (_EQUAL, 0, 1, RAW), (_RETURN, 0, 0, EPERM)]
        body += [(_SHIFT_LEFT, 0, 0, 16), (_TO_OTHER, 0, 0, 0)]
        body += [*_argument(2), (_OR_OTHER, 0, 0, 0)]
        body += [(_EQUAL, len(known) - at, 0, kind) for at, kind in enumerate(known)]
        code += _if_called(
            number,
            [*_argument(0), (_EQUAL, 0, len(body) + 1, family), *body],
            answer=EPROTONOSUPPORT,
        )
    return code
