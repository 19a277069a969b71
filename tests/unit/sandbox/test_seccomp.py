"""The system call filter, run by hand: what it answers to calls that no test here could make."""

from __future__ import annotations

import struct

import pytest

from artangram.sandbox.inside import seccomp
from artangram.sandbox.inside.seccomp import ALLOW, DONE, EINVAL, ENOSYS, EPERM

MACHINES = ("x86_64", "aarch64")
# fmt: off
NUMBERS = {
    "x86_64": {
        "read": 0,
        "setrlimit": 160, "prlimit64": 302,
        "sync": 162, "syncfs": 306, "fcntl": 72, "ioprio_set": 251,
        "mmap": 9, "memfd_create": 319, "shmget": 29, "prctl": 157, "socket": 41,
        "ioctl": 16, "io_setup": 206, "seccomp": 317,
    },
    "aarch64": {
        "read": 63,
        "setrlimit": 164, "prlimit64": 261,
        "sync": 81, "syncfs": 267, "fcntl": 25, "ioprio_set": 30,
        "mmap": 222, "memfd_create": 279, "shmget": 194, "prctl": 167, "socket": 198,
        "ioctl": 29, "io_setup": 0, "seccomp": 277,
    },
}
# fmt: on
HIGH = 1 << 32


def answer(machine: str, number: int, *args: int, arch: int = 0) -> int:
    """What the kernel is told to do with a call."""
    six = (*args, *[0] * (6 - len(args)))
    data = struct.pack("<IIQ6Q", number, arch or seccomp.ARCH[machine], 0, *six)
    program = [*struct.iter_unpack("HBBI", seccomp.program(own_affinity=True, machine=machine))]
    at, loaded, other = 0, 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        match code:
            case 0x06:
                return int(value)
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case 0x54:
                loaded &= value
            case 0x64:
                loaded = loaded << value & 0xFFFFFFFF
            case 0x4C:
                loaded |= other
            case 0x07:
                other = loaded
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("read", (0, 0, 100), ALLOW),
        ("setrlimit", (7, 1), ALLOW),
        ("setrlimit", (4, 1), DONE),
        ("prlimit64", (0, 7, 1, 0), ALLOW),
        ("prlimit64", (0, 4, 0, 1), ALLOW),
        ("prlimit64", (0, 4, 1, 0), DONE),
        ("prlimit64", (0, 4, HIGH, 0), DONE),
        ("prlimit64", (1, 7, 0, 1), EPERM),
        ("sync", (), DONE),
        ("syncfs", (3,), DONE),
        ("io_setup", (1, 1), ENOSYS),
        ("seccomp", (1, 8, 1), ALLOW),
        ("seccomp", (1, 40, 1), EINVAL),
        ("fcntl", (3, 1025, 0), ALLOW),
        ("fcntl", (3, 1024, 1), EPERM),
        ("ioprio_set", (1, 0, 0), ALLOW),
        ("ioprio_set", (1, 1, 0), EPERM),
        ("ioprio_set", (2, 0, 0), EPERM),
        ("ioprio_set", (3, 1900000000, 0), EPERM),
        ("mmap", (0, 4096, 3, 0x22), ALLOW),
        ("mmap", (0, 4096, 3, 0x40022), EPERM),
        ("memfd_create", (1, 3), ALLOW),
        ("memfd_create", (1, 4), EPERM),
        ("shmget", (0, 4096, 0o1600), ALLOW),
        ("shmget", (0, 4096, 0o5600), EPERM),
        ("prctl", (38, 1), ALLOW),
        ("prctl", (62, 1), EPERM),
        ("socket", (2, 1, 6), ALLOW),
        ("socket", (10, 0x80801, 0), ALLOW),
        ("socket", (2, 2, 17), ALLOW),
        ("socket", (2, 2, 1), ALLOW),
        ("socket", (10, 2, 58), ALLOW),
        ("socket", (10, 2, 1), seccomp.EPROTONOSUPPORT),
        ("socket", (2, 1, 17), seccomp.EPROTONOSUPPORT),
        ("socket", (2, 5, 132), seccomp.EPROTONOSUPPORT),
        ("socket", (10, 1, 262), seccomp.EPROTONOSUPPORT),
        ("socket", (2, 0x80003, 0), EPERM),
        ("socket", (1, 5, 0), ALLOW),
        ("ioctl", (3, 0x5413, 1), ALLOW),
        ("ioctl", (3, 0x8940, 1), EPERM),
        ("socket", (40, 1, 0), seccomp.EAFNOSUPPORT),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 4), seccomp.EPROTONOSUPPORT),
        ("socket", (16, 3, 15), seccomp.EPROTONOSUPPORT),
    ],
)
def test_a_call_is_judged_by_its_arguments(
    machine: str, name: str, args: tuple[int, ...], wanted: int
) -> None:
    assert answer(machine, NUMBERS[machine][name], *args) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_newer_than_the_list_do_not_exist(machine: str) -> None:
    assert answer(machine, seccomp.NEWEST) == ALLOW
    assert {answer(machine, seccomp.NEWEST + n) for n in (1, 2, 100, 1 << 20)} == {ENOSYS}


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_machine_end_the_program(machine: str) -> None:
    other = next(arch for name, arch in seccomp.ARCH.items() if name != machine)
    assert answer(machine, 0, arch=other) == seccomp.KILL
