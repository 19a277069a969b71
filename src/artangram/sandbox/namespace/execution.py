"""One command in a sandbox, from its order to its result; without a task, for most are short.

- `on_end` hears of its end exactly once: a result, or why it has no result.
- Init holds the deadline. If it does not answer within `GRACE_S` of it, the whole sandbox is
  killed from outside and the command counts as timed out.
- A sandbox that the kernel kills for memory ended its command out of memory: that is the
  program's doing, not the infrastructure's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Protocol

from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.inside import channel, init, request
from artangram.sandbox.inside.request import InitRequest
from artangram.sandbox.namespace.cores import CoreLender, Hold, bring, threads_below
from artangram.sandbox.namespace.exchange import Feed, OutputPipe, resume
from artangram.sandbox.namespace.machineroom import MachineRoom
from artangram.sandbox.namespace.results import (
    InitReply,
    Memory,
    Printed,
    order_of,
    printed_in,
    result_of,
)
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.protocol import Command, CommandResult, CoreMeter

GRACE_S = 1.0
NUM_OUTLETS = 2
LOOK_EVERY_S = 0.25
"""Deadlines are init's affair; the watch is for an init that does not do it."""

Ending = CommandResult | SandboxError
OnEnd = Callable[[Ending], None]
LACKS = {errno.EAGAIN: "processes", errno.ENFILE: "open files"}
"""Why a program did not start although its sandbox has it: what is lacking, by error number."""


class Overdue(Protocol):
    """What a `Watch` may end."""

    def kill(self) -> None: ...


class Watch:
    """Ends, from outside, executions that are long past their deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[Overdue, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, execution: Overdue, at: float) -> None:
        self._due[execution] = at
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def remove(self, execution: Overdue) -> None:
        self._due.pop(execution, None)

    def _look(self) -> None:
        self._timer = None
        now = monotonic()
        for execution in [one for one, at in self._due.items() if at <= now]:
            del self._due[execution]
            execution.kill()
        if self._due:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)


class ExecutionHost(Protocol):
    """What an execution needs of the provider of its sandbox."""

    cores: CoreLender
    watch: Watch
    room: MachineRoom

    @property
    def is_crowded(self) -> bool:
        """Are there more sandboxes than may rest in the way of others?"""
        ...

    def rlimits(self, *, processes: int, memory_mb: int, disk_mb: int) -> dict[int, int]:
        """What limits each process where no control group limits all of them; 0: as before."""
        ...


class ExecutionSandbox(Protocol):
    """What an execution needs of its sandbox."""

    traits: Traits
    pid: int
    num_ooms: int
    ended: asyncio.Event
    groups: set[int]
    """The numbers of control groups that init has learned."""
    joined: int
    """The number of the one that the last command and the kept processes are in."""
    has_kept: bool
    measures: bool
    """Does init read the memory group itself?"""

    @property
    def name(self) -> str: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def parallel_pids(self) -> frozenset[int]:
        """First processes of the parallel commands, as the sandbox numbers them."""
        ...

    def kill(self) -> None:
        """End it from outside."""
        ...

    def send(self, data: bytes, fds: list[int]) -> None: ...


class ParallelBox(ExecutionSandbox, Protocol):
    """What a command beside others needs of its sandbox."""

    async def told(self, verb: int, *, path: bytes, mode: int) -> None:
        """Tell init; a frozen sandbox is woken for it."""
        ...

    def run_later(self, work: Coroutine[Any, Any, None]) -> None: ...


def learned(box: ExecutionSandbox, hold: Hold) -> int:
    """The number of the control group to join, which init has learned; -1 for no group."""
    number = -1
    for number, tasks in hold.groups:
        if number not in box.groups:
            box.send(InitRequest(0, request.LEARN, mode=number).encode(), [tasks])
            box.groups.add(number)
    return number


class Execution:
    """See the module. `begin` sends it; `on_reply` and `on_lost` are for its sandbox."""

    def __init__(
        self,
        box: ExecutionSandbox,
        command: Command,
        *,
        number: int,
        on_end: OnEnd,
        feed: Feed | None = None,
    ) -> None:
        self.number = number
        self._box = box
        self._command = command
        self._on_end = on_end
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._outlets: tuple[OutputPipe, ...] = ()
        self._problem: SandboxError | None = None
        self._is_overdue = False
        self._post_mortem_task: asyncio.Task[None] | None = None

    def begin(self, host: ExecutionHost, *, asked_at: float) -> None:
        """Limit, lend cores, send. What it raises has left nothing behind.

        `BadInput` for limits that this sandbox cannot keep.
        """
        box, command = self._box, self._command
        groups, limits = box.traits.groups, box.traits.limits
        if command.has_own_limits:
            limits.admit(command)
        self._room = host.room
        if command.keep:
            host.room.check_kept()
        rlimits: dict[int, int] = {}
        if groups is None:
            rlimits = host.rlimits(
                processes=command.processes or limits.processes,
                memory_mb=command.memory_mb or limits.memory_mb,
                disk_mb=command.disk_mb,
            )
        else:
            groups.begin(memory_mb=command.memory_mb, processes=command.processes)
            if command.share != groups.shared.share:
                groups.shared.set(box.pid, command.share)
            if command.keep:
                groups.expect_kept(box.pid)
        now = monotonic()
        self._hold: Hold = host.cores.lend(groups, box.pid, cores=command.cores)
        self._meter = CoreMeter(len(command.cores), asked_at=asked_at, now=now)
        self._watch = host.watch
        try:
            self._send(rlimits, is_crowded=host.is_crowded, is_beside=host.cores.num_lent > 1)
        except BaseException:
            self._hold.release()
            raise
        host.watch.add(self, now + command.timeout_s + GRACE_S)
        if groups is not None and not box.measures:
            groups.forget_peak()

    def _send(self, rlimits: dict[int, int], *, is_crowded: bool, is_beside: bool) -> None:
        box, command, fds = self._box, self._command, list[int]()
        flags = request.KEEP if command.keep else 0
        if self._feed is not None:
            flags |= request.WATCHED
        group = self._group()
        if group >= 0:
            flags |= request.MOVES
        if is_beside:
            flags |= request.RESTS | request.BESIDE
        elif is_crowded:
            flags |= request.RESTS
        if command.stdin:
            flags |= request.HAS_STDIN
            fds.append(channel.memory_file(command.stdin))
        try:
            order = order_of(
                self.number, command, traits=box.traits, rlimits=rlimits, flags=flags, group=group
            )
            box.send(order, fds)
        finally:
            if command.stdin:
                os.close(fds[0])

    def _group(self) -> int:
        """See `learned`; the kept processes go there, too."""
        box, number = self._box, learned(self._box, self._hold)
        if box.has_kept and number not in (-1, box.joined):
            box.joined = -1  # until all are there
            tasks = self._hold.groups[-1][1]
            bring(tasks, threads_below(box.pid, without=box.parallel_pids))
        box.joined = number
        return number

    def resize(self, cores: tuple[int, ...]) -> None:
        self._hold.resize(cores)
        self._meter.resize(len(cores), now=monotonic())

    def kill(self) -> None:
        """It is overdue."""
        self._is_overdue = True
        self._box.kill()

    def on_reply(self, reply: InitReply) -> None:
        if reply.kind == init.OUTPUT:
            self._take_outlets(reply)
            resume(*self._outlets)
        else:
            self._finish(reply)

    def on_lost(self, reason: str) -> None:
        """The sandbox died under it."""
        self._post_mortem_task = self._loop.create_task(self._post_mortem(reason))

    def _take_outlets(self, reply: InitReply) -> None:
        if len(reply.fds) != NUM_OUTLETS:
            # The kernel leaves out descriptors that we have no room for. From then on the program
            # writes to no reader, so what becomes of it is not its own doing.
            reply.close()
            self._problem = SandboxError("too many open files here to read what a command prints")
            return
        cap = self._command.output_bytes
        self._outlets = tuple(OutputPipe(self._loop, fd, cap=cap) for fd in reply.take())
        if self._feed is not None:
            self._feed.attach(*self._outlets)

    def _finish(self, reply: InitReply) -> None:
        self._watch.remove(self)
        self._hold.release()
        self._meter.stop(monotonic())
        printed, memory = self._printed(reply), self._memory(reply)
        if memory is not None and self._command.has_own_limits:
            self._end_limits()
        ending: Ending
        try:
            ending = result_of(reply, printed, memory=memory, meter=self._meter)
        except SandboxError as error:
            ending = error
        if reply.kind == init.NOT_STARTED and self._is_lack_of_the_machine(reply.status):
            ending = SandboxError(f"this machine has no room for more {LACKS[reply.status]}")
        elif isinstance(ending, CommandResult) and ending.exit_code and not self._problem:
            ending = self._room.judged(ending)
        self._on_end(self._problem or ending)

    def _is_lack_of_the_machine(self, status: int) -> bool:
        """Did a program not start because others have taken what it needs?

        If a sandbox keeps processes and they are half of what it may have, it is believed to have
        used up its own: they may have ended since, and must not pass for a lack of the machine.
        """
        if status != errno.EAGAIN or not self._box.has_kept:
            return status in LACKS
        groups = self._box.traits.groups
        return groups is not None and not groups.has_many_processes()

    def _printed(self, reply: InitReply) -> Printed:
        if reply.flags & init.WITH_OUTLETS:
            self._take_outlets(reply)
        if not self._outlets:
            return printed_in(reply, cap=self._command.output_bytes)
        stdout, stderr = self._outlets
        stdout.drain()
        stderr.drain()
        return Printed(stdout.data, stderr.data, stdout.num_truncated + stderr.num_truncated)

    def _end_limits(self) -> None:
        assert self._box.traits.groups is not None
        with contextlib.suppress(OSError):  # It may die meanwhile.
            self._box.traits.groups.end()

    def _memory(self, reply: InitReply) -> Memory | None:
        groups = self._box.traits.groups
        if groups is None or not self._box.is_alive:
            return None
        peak, num_ooms = reply.figures[5:7]
        if num_ooms == init.UNKNOWN:
            peak, num_ooms = groups.read_peak(), groups.read_ooms()
        return Memory(groups.note_ooms(num_ooms), peak)

    async def _post_mortem(self, reason: str) -> None:
        """Why the sandbox died under its command; `ended` tells what the kernel counted."""
        box = self._box
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(box.ended.wait(), GRACE_S)
        groups = box.traits.groups
        if self._is_overdue:
            self._finish(InitReply.killed(flags=init.TIMED_OUT))
        elif groups is not None and box.num_ooms > groups.num_ooms:
            self._finish(InitReply.killed(out_of_memory=True))
        else:
            self._lose(SandboxGone(f"{box.name}: {reason}"))

    def _lose(self, error: SandboxGone) -> None:
        self._watch.remove(self)
        self._hold.release()
        for outlet in self._outlets:
            outlet.close()
        self._on_end(error)
