"""Keeps one agent running on a Ray node. An actor that holds the claim on its CPUs and GPUs.

- The agent lives in a session of its own, without a parent: neither the end of this actor nor that
  of the raylet ends it. A warden that is started again finds it by its lock and adopts it.
- An agent that ends is started again, later each time; one that was drained, or told to stop, is
  not.
- A warden that hears of no head for `ABANDONED_S` ends its agent and gives its claim back.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from select import select
from threading import Event, Lock, Thread

from artangram.backends.agentlock import holder, is_held, lock_path
from artangram.backends.ray.records import AgentOrder, AgentState

ABANDONED_S = 600.0
LOOK_EVERY_S = 0.25
START_S = 30.0
"""How long an agent may take from its start to its lock."""
TELL_S = 2.0
"""How long the shell around an agent may take to tell how it ended."""
PAUSE_S, PAUSE_MOST_S = 0.5, 30.0
"""Before an agent that ended is started again."""
END_S = 20.0
"""How long an agent may take to end its sandboxes before it is killed."""

_VERB = "from artangram.cli import main; main()"
# The shell stays to tell how the agent ended; this process may be another one by then.
_SHELL = 'code=$1; shift; "$@"; echo $? >"$code"'
_OF_RAY = ("RAY_", "OMP_NUM_THREADS", "PYTHONBREAKPOINT")


def agent_words(order: AgentOrder) -> list[str]:
    """The verb and its options; the join token is in the environment."""
    at = f"[{order.host}]:{order.port}" if ":" in order.host else f"{order.host}:{order.port}"
    return [
        *("agent", "--join", at, "--node", order.node, "--fingerprint", order.fingerprint),
        *("--cores", str(order.cores), "--patience-s", f"{order.patience_s:g}"),
        *(("--label", f"gpus={order.gpus:g}") if order.gpus else ()),
    ]


class Warden:
    """See the module. `order` is `None` where a claim is all that is wanted."""

    def __init__(
        self,
        order: AgentOrder | None,
        *,
        abandoned_s: float = ABANDONED_S,
        on_abandoned: Callable[[], None] | None = None,
    ) -> None:
        self._order = order
        self._abandoned_s = abandoned_s
        self._on_abandoned = on_abandoned or _leave_ray
        self._heard_at = time.monotonic()
        self._over = Event()
        self._changing = Lock()
        self._state = AgentState()
        self._advice = _step_out_of_rays_limits()
        self._keeping = Thread(target=self._keep, daemon=True)
        self._keeping.start()

    def look(self, order: AgentOrder | None) -> AgentState:
        """The agent as it is. The caller is a head that still wants this one, with `order`."""
        self._heard_at = time.monotonic()
        if order != self._order:
            with self._changing:
                self._order, self._state = order, AgentState()
        return self._state

    def end(self) -> None:
        """End the agent, and start no other. Returns when it is gone."""
        self._over.set()
        self._keeping.join()
        if self._order is not None:
            end_agent(self._order.node, self._order.token)

    def _keep(self) -> None:
        kept = _KeptAgent(self._advice)
        while not self._over.wait(LOOK_EVERY_S):
            if time.monotonic() - self._heard_at > self._abandoned_s:
                if self._order is not None:
                    end_agent(self._order.node, self._order.token)
                self._on_abandoned()
                return
            with self._changing:
                if self._order is not None:
                    self._state = kept.looked_at(self._order)


class _Phase(Enum):
    IDLE = auto()
    STARTING = auto()
    RUNNING = auto()
    ENDING = auto()
    LEFT = auto()


class _KeptAgent:
    """Looks after the agent of one order at a time; the order may change."""

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._order: AgentOrder | None = None
        self._phase, self._since, self._pause_s = _Phase.IDLE, 0.0, 0.0
        self._is_ours = False
        self._trouble = ""

    def looked_at(self, order: AgentOrder) -> AgentState:
        """Start the agent if it has to be."""
        if order != self._order:
            self._order, self._pause_s = order, 0.0
            self._enter(_Phase.IDLE)
            if not _is_as_ordered(order):
                end_agent(order.node, order.token)
        lock = lock_path(order.node, order.token)
        if is_held(lock):
            if self._phase is not _Phase.RUNNING:
                self._enter(_Phase.RUNNING)
            is_adopted = not self._is_ours
            return AgentState(pid=holder(lock), is_adopted=is_adopted, trouble=self._advice)
        self._go_on(order)
        return AgentState(has_left=self._phase is _Phase.LEFT, trouble=self._trouble)

    def _go_on(self, order: AgentOrder) -> None:
        """No agent holds the lock now."""
        since_s = time.monotonic() - self._since
        code = _exit_code(order)
        if self._phase is _Phase.RUNNING:
            self._enter(_Phase.ENDING)
        elif self._phase is _Phase.ENDING and (code is not None or since_s > TELL_S):
            self._ended(order, code)
        elif self._phase is _Phase.STARTING and (code is not None or since_s > START_S):
            self._ended(order, 1)
        elif self._phase is _Phase.IDLE and since_s >= self._pause_s:
            self._enter(_Phase.STARTING)
            self._is_ours = True
            _start(order)

    def _ended(self, order: AgentOrder, code: int | None) -> None:
        if code == 0:
            self._enter(_Phase.LEFT)
            return
        self._trouble = _last_line(order)
        self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_MOST_S)
        self._enter(_Phase.IDLE)

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._since = phase, time.monotonic()


def end_agent(node: str, token: str) -> None:
    """End the agent of this name on this machine; returns when it is gone."""
    pid = holder(lock_path(node, token))
    if pid is None:
        return
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(process, number)
                if select([process], [], [], END_S)[0]:
                    return
        finally:
            os.close(process)


def _is_as_ordered(order: AgentOrder) -> bool:
    """Was the agent that runs started with the words of this order?"""
    pid = holder(lock_path(order.node, order.token))
    if pid is None:
        return True
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return True
    return "agent" in words and words[words.index("agent") : -1] == agent_words(order)


def _start(order: AgentOrder) -> None:
    code, log = _beside(order, ".exit"), _beside(order, ".log")
    code.unlink(missing_ok=True)
    environ = {name: v for name, v in os.environ.items() if not name.startswith(_OF_RAY)}
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as out:
        subprocess.run(
            [
                *("setsid", "--fork", "sh", "-c", _SHELL, "sh", str(code)),
                *(sys.executable, "-c", _VERB, *agent_words(order)),
            ],
            env=environ | {"ARTANGRAM_JOIN_TOKEN": order.token},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=True,
        )


def _exit_code(order: AgentOrder) -> int | None:
    """How the agent that was started last ended; `None` if it runs, or nothing tells."""
    with suppress(OSError, ValueError):
        return int(_beside(order, ".exit").read_text())
    return None


def _last_line(order: AgentOrder) -> str:
    with suppress(OSError):
        lines = _beside(order, ".log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return "its log cannot be read"


def _beside(order: AgentOrder, suffix: str) -> Path:
    return lock_path(order.node, order.token).with_suffix(suffix)


def _step_out_of_rays_limits() -> str:
    """Ray makes its workers nice, and the first victims when memory is short; agents are not.

    Returns what the user should know if that is not permitted.
    """
    raylet = os.environ.get("RAY_RAYLET_PID", "")
    if not raylet.isdecimal():
        return ""
    try:
        nice = os.getpriority(os.PRIO_PROCESS, int(raylet))
        score = Path(f"/proc/{raylet}/oom_score_adj").read_text()
        Path("/proc/self/oom_score_adj").write_text(score)
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        now = os.getpriority(os.PRIO_PROCESS, 0)
        return f"it runs at niceness {now}; start Ray with RAY_worker_niceness=0 to change that"
    return ""


def _leave_ray() -> None:
    """Give the claim back, for good."""
    import ray

    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
