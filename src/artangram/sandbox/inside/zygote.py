"""Forks sandboxes, reaps them, and cleans up behind them.

It does not use `artangram.forkserver`: it clones into namespaces, and what it imports would be in
the memory of every sandbox, so nothing here imports from outside `sandbox.inside`.

- Single-threaded and preloaded: a sandbox is a clone of this process, so a new one costs no
  start of an interpreter and shares its memory.
- A sandbox's control groups are removed here, after its last process is gone, so that a caller
  that is killed leaves nothing.
- Ends when its socket closes, and takes every sandbox with it.
"""

from __future__ import annotations

import gc
import os
import select
import time
from _socket import socket as RawSocket

from artangram.sandbox.inside import channel, linux, population, seccomp, setup
from artangram.sandbox.inside.spare import Spare

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE_S = 5.0
IDLE_MS = 20
ISOLATED = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS


class SandboxZygote:
    """The loop: create and kill on request, tell of every end."""

    def __init__(
        self,
        sock: RawSocket,
        syscalls: linux.Filter | None,
        *,
        compiled: linux.CompiledInit | None,
    ) -> None:
        self._sock = sock
        self._syscalls = syscalls
        self._compiled = compiled
        self._ended = linux.child_signals()
        self._created: dict[int, dict[str, Any]] = {}
        self._score = setup.own_score()
        self._spare: Spare | None = None
        #: Where to prepare one; empty if none is wanted.
        self._spare_stage = ""

    def serve(self, *, run_dir: str) -> None:
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        try:
            while True:
                ready = poll.poll(IDLE_MS if self._spare_stage else None)
                if not ready:
                    self._make_spare()
                for fd, _ in ready:
                    if fd == self._ended:
                        self._reap()
                    else:
                        self._answer()
        except (EOFError, OSError):
            self._end_all()
            remove_tree(run_dir)

    def _answer(self) -> None:
        message, fds = channel.receive(self._sock)
        try:
            if message[0] == "create":
                self._create(message[1], fds[0])
            elif message[0] == "kill":
                self._kill(message[1])
            elif message[0] == "library":
                self._compiled = linux.compiled_init(message[1])
        finally:
            for fd in fds:
                os.close(fd)

    def _create(self, plan: dict[str, Any], control: int) -> None:
        plan["score"] = self._score
        flags = 0 if plan["directory"] else ISOLATED
        if flags and not plan["network"]:
            flags |= linux.CLONE_NEWNET
        try:
            setup.make_groups(plan["groups"])
            pid = self._clone(plan, flags, control)
        except OSError as error:
            for group, _, _ in plan["groups"]:
                remove_group(group)
            channel.send(self._sock, ("failed", plan["name"], str(error)))
            return
        self._created[pid] = plan
        if not plan["directory"] and not plan["userns"] and self._spare is None:
            self._spare_stage = plan["stage"]
        channel.send(self._sock, ("created", plan["name"], pid))

    def _clone(self, plan: dict[str, Any], flags: int, control: int) -> int:
        """Clone into new namespaces, a user namespace among them where we are not root."""
        if plan["userns"]:
            if plan["as_root"]:
                plan["uid"] = plan["gid"] = 0
            ids = f"{plan['uid']} {os.getuid()} 1", f"{plan['gid']} {os.getgid()} 1"
            flags |= linux.CLONE_NEWUSER
            return clone_mapped(flags, *ids, lambda: self._live(plan, control))
        if plan["own"]:
            plan["users"] = users_namespace(plan["uid"], plan["gid"])
        elif (pid := self._use_spare(plan, flags, control)) > 0:
            return pid
        try:
            pid = linux.clone(flags)
            if pid == 0:
                self._live(plan, control)
            return pid
        finally:
            if plan["own"]:
                os.close(plan["users"])

    def _make_spare(self) -> None:
        """Be one clone ahead of the next request; in a burst that would only delay it."""
        stage, self._spare_stage = self._spare_stage, ""
        try:
            self._spare = Spare(ISOLATED | linux.CLONE_NEWNET, stage, self._live_prepared)
        except OSError:
            return  # the next request for a sandbox meets the same error and reports it

    def _use_spare(self, plan: dict[str, Any], flags: int, control: int) -> int:
        """The process that becomes `plan`; 0 if no spare fits."""
        spare = self._spare
        if spare is None or (spare.flags, spare.stage) != (flags, plan["stage"]):
            return 0
        self._spare = None
        try:
            spare.become(plan, control)
        except OSError:
            return 0
        return spare.pid

    def _live(self, plan: dict[str, Any], control: int, *, is_prepared: bool = False) -> None:
        setup.live(
            plan,
            control,
            syscalls=self._syscalls,
            compiled=self._compiled,
            is_prepared=is_prepared,
        )

    def _live_prepared(self, plan: dict[str, Any], control: int) -> None:
        self._live(plan, control, is_prepared=True)

    def _kill(self, name: str) -> None:
        for pid, plan in self._created.items():
            if plan["name"] == name:
                os.kill(pid, linux.SIGKILL)

    def _reap(self) -> None:
        os.read(self._ended, 4096)
        while self._created or self._spare is not None:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if self._spare is not None and pid == self._spare.pid:
                self._spare = None
            self._reap_one(pid)

    def _reap_one(self, pid: int) -> None:
        plan = self._created.pop(pid, None)
        if plan is None:
            return
        if plan["directory"]:
            self._end_strays()
        num_ooms = count_ooms(plan["ooms_file"])
        for group, _, _ in plan["groups"]:
            remove_group(group)
        channel.send(self._sock, ("exited", plan["name"], num_ooms))

    def _end_strays(self) -> None:
        """Plain processes whose init was killed became our children: we adopt orphans."""
        while strays := set(population.children(os.getpid())) - set(self._created):
            for stray in strays:
                for pid in (*population.descendants(stray), stray):
                    population.signal_one(pid, linux.SIGKILL)
                os.waitpid(stray, linux.WALL)

    def _end_all(self) -> None:
        if self._spare is not None:
            os.kill(self._spare.pid, linux.SIGKILL)
        for pid, plan in self._created.items():
            os.kill(pid, linux.SIGKILL)
            for group, _, _ in plan["groups"]:
                thaw_group(group)
        while self._created:
            self._created.pop(os.waitpid(-1, 0)[0], None)
        self._end_strays()


def clone_mapped(flags: int, users: str, groups: str, live: Callable[[], None]) -> int:
    """Clone into a user namespace; the child calls `live` when its ids are mapped."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = linux.clone(flags)
    if pid == 0:
        os.close(write_end)
        os.read(read_end, 1)
        live()
        os._exit(0)
    os.close(read_end)
    try:
        setup.write_setting(f"/proc/{pid}/setgroups", "deny")
        setup.write_setting(f"/proc/{pid}/uid_map", users)
        setup.write_setting(f"/proc/{pid}/gid_map", groups)
    except OSError:
        os.kill(pid, linux.SIGKILL)
        raise
    finally:
        os.close(write_end)
    return pid


def users_namespace(uid: int, gid: int) -> int:
    """A descriptor of a user namespace in which root of the image is the sandbox's user."""
    waiting, go = os.pipe2(os.O_CLOEXEC)

    def wait() -> None:
        os.close(go)
        os.read(waiting, 1)

    pid = clone_mapped(linux.CLONE_NEWUSER, f"0 {uid} 1", f"0 {gid} 1", wait)
    try:
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(go)
        os.close(waiting)
        os.waitpid(pid, 0)


def count_ooms(path: str) -> int:
    """How often the kernel killed for memory in a group; 0 where it does not count."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        for line in os.read(fd, 4096).split(b"\n"):
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return 0
    finally:
        os.close(fd)


def thaw_group(group: str) -> None:
    """A task frozen by the first freezer cannot die; one frozen by the second can."""
    state = group + "/freezer.state"
    if os.path.exists(state):
        setup.write_setting(state, "THAWED")


def remove_group(group: str) -> None:
    """Remove an empty control group; the kernel may take a moment to see that it is."""
    gives_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            os.rmdir(group)
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > gives_up_at:
                return
            time.sleep(0.001)


def remove_tree(run_dir: str) -> None:
    """Remove a provider's directory, after the empty control groups it names."""
    for parent in listed_groups(run_dir):
        if os.path.isdir(parent):
            for entry in os.scandir(parent):
                if entry.is_dir():
                    remove_group(entry.path)
            remove_group(parent)
    remove_all(run_dir)


def remove_all(path: str) -> None:
    """Remove a directory, whatever is in it and however deep; what cannot be removed stays.

    Directories are lifted out of each other, so that none takes a descriptor, or a name, that is
    the longer the deeper it is. No link is followed, even if a program inside puts one in the place
    of a directory meanwhile; no other process may be able to do so beside `path`.
    """
    waiting, number = [path], 0
    while waiting:
        folder = waiting.pop()
        try:
            if os.path.islink(folder):
                os.unlink(folder)
                continue
            for entry in list(os.scandir(folder)):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                number += 1
                _reopen(entry.path)
                os.rename(entry.path, f"{path}.{number}")
                waiting.append(f"{path}.{number}")
            os.rmdir(folder)
        except OSError:
            continue  # it is gone, or not ours


def _reopen(directory: str) -> None:
    """Its owner may have closed it to itself."""
    held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)
    finally:
        os.close(held)


def listed_groups(run_dir: str) -> list[str]:
    """The directories below which a provider's control groups are."""
    try:
        with open(run_dir + "/groups") as listed:
            return [line for line in listed.read().split("\n") if line]
    except OSError:
        return []  # no control groups on this machine


def main(
    control: int, run_dir: str, *, plain: bool, own_affinity: bool, filtered: bool, library: str
) -> None:
    """For sandboxes with namespaces, or for `plain` processes.

    `own_affinity`: whether those inside may choose among the cores they were given.
    `library`: the compiled loop of init; empty for the one in Python.
    """
    linux.ignore_interrupts()
    linux.raise_priority()
    os.set_inheritable(control, False)
    if plain:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    elif os.getuid() == 0:
        _own_mounts()
        linux.forbid_capabilities()
    syscalls = linux.Filter(seccomp.program(own_affinity=own_affinity)) if filtered else None
    compiled = linux.compiled_init(library)
    gc.collect()
    gc.freeze()
    gc.disable()
    SandboxZygote(RawSocket(fileno=control), syscalls, compiled=compiled).serve(run_dir=run_dir)


def _own_mounts() -> None:
    """What sandboxes mount must never show up on the machine, not even for a moment."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
