"""Looks at the processes of this machine many times a second: what runs on each core of each host.

- A run of the soak carries the number of its action in its environment, and stays one process.
- A process that is seen once is a run, whatever the cluster says of it. The first process of a host
  is its ancestor.
- Two runs on one core count when both are there at a second look: no list of processes is
  taken at one instant.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

MARK = f"ARTANGRAM_SOAK_{os.getpid()}"
"""The variable with the number of an action; soaks that run beside each other have their own."""
EVERY_S = 0.03
NEW_S = 2.0
"""A process may take this long from its fork to its program."""


class SeenRun(Struct, kw_only=True):
    """One process that ran an action."""

    action: int
    host: str
    pid: int
    first_at: float
    last_at: float


class Watch:
    """A thread that looks while the block lasts. `hosts` gives the inits of each host."""

    def __init__(self, hosts: Callable[[], dict[int, str]], *, checks_cores: bool = True) -> None:
        self._hosts = hosts
        self._checks_cores = checks_cores
        self._runs: dict[int, SeenRun] = {}
        self._young: dict[int, float] = {}
        self._known: set[int] = set()
        self._is_over = threading.Event()
        self._told: set[tuple[str, int, int]] = set()
        self._began_at = time.monotonic()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.seen: list[SeenRun] = []
        self._host_of_action: dict[int, str] = {}
        self.samples = 0
        self.violations: list[str] = []
        self.error: Exception | None = None

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def clock(self) -> float:
        """Seconds since it began to look."""
        return time.monotonic() - self._began_at

    @property
    def running(self) -> int:
        """Runs that the latest look found."""
        return len(self._runs)

    def host_of_action(self, action: int) -> str | None:
        """Where its latest run was seen."""
        return self._host_of_action.get(action)

    def _look_on(self) -> None:
        while not self._is_over.wait(EVERY_S):
            try:
                self._look(time.monotonic())
            except Exception as error:  # noqa: BLE001 - the soak's own thread has to hear of it
                self.error = error
                return

    def _look(self, now: float) -> None:
        there = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        for pid in self._known - there:
            self._runs.pop(pid, None)
            self._young.pop(pid, None)
        for pid in there - self._known:
            self._young[pid] = now + NEW_S
        self._known = there
        for pid, until in list(self._young.items()):
            action = _action_of(pid)
            if action is None:
                if now >= until:
                    del self._young[pid]
                continue
            del self._young[pid]
            run = SeenRun(
                action=action, host=self._host_of(pid), pid=pid, first_at=now, last_at=now
            )
            self._runs[pid] = run
            self.seen.append(run)
            self._host_of_action[action] = run.host
        self.samples += 1
        self._check(now)

    def _check(self, now: float) -> None:
        holders: dict[tuple[str, str], SeenRun] = {}
        actions: dict[int, SeenRun] = {}
        for run in list(self._runs.values()):
            run.last_at = now
            other = actions.setdefault(run.action, run)
            if other is not run and _both_run(run, other):
                self._violated(f"action {run.action} runs twice at once", run, other)
            for core in _cores_of(run.pid) or () if self._checks_cores else ():
                holder = holders.setdefault((run.host, core), run)
                if holder is not run and self._shares(holder, run, core):
                    self._violated(f"core {core} of {run.host} has two runs", holder, run)

    def _shares(self, one: SeenRun, other: SeenRun, core: str) -> bool:
        """Still, at a second look?"""
        both = (_cores_of(one.pid), _cores_of(other.pid))
        return all(cores is not None and core in cores for cores in both) and _both_run(one, other)

    def _violated(self, what: str, one: SeenRun, other: SeenRun) -> None:
        pair = (what, one.pid, other.pid)
        if pair in self._told:
            return
        self._told.add(pair)
        runs = " and ".join(
            f"action {run.action} (pid {run.pid}, for {run.last_at - run.first_at:.2f} s, cores "
            f"{','.join(sorted(_cores_of(run.pid) or ()))})"
            for run in (one, other)
        )
        self.violations.append(f"{what} at {self.clock():.1f} s: {runs}")

    def _host_of(self, pid: int) -> str:
        hosts = self._hosts()
        while pid > 1:
            if pid in hosts:
                return hosts[pid]
            pid = _parent_of(pid)
        return "gone"


def _both_run(one: SeenRun, other: SeenRun) -> bool:
    return _action_of(one.pid) == one.action and _action_of(other.pid) == other.action


def _action_of(pid: int) -> int | None:
    """The action that a process runs; `None` if it is not of the soak, or gone."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in environ.split(b"\0"):
        if entry.startswith(MARK.encode() + b"="):
            return int(entry.partition(b"=")[2])
    return None


def _field(pid: int, name: str) -> str | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((x.partition("\t")[2] for x in lines if x.startswith(f"{name}:")), None)


def _parent_of(pid: int) -> int:
    return int(_field(pid, "PPid") or 0)


def _cores_of(pid: int) -> frozenset[str] | None:
    """The cores that it may use, as the kernel writes them; `None` if it is gone."""
    text = _field(pid, "Cpus_allowed_list")
    if text is None:
        return None
    cores: set[str] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores |= {str(core) for core in range(int(first), int(last or first) + 1)}
    return frozenset(cores)
