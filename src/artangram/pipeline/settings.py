"""What a training run is told, as one record. Every default has its reason beside it."""

import re

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.core.rollout.weights import Staleness, preset
from artangram.gateway.engines.protocol import TEMPERATURES
from artangram.pipeline.loops import LOOPS
from artangram.pipeline.sinks import TRACKERS
from artangram.rollout import PhaseLimits, Plan, Retries, Spares
from artangram.sandbox.network import split_port
from artangram.train.settings import TrainSettings

_PRESETS = {
    "synchronous": "sync",
    "one-off": "one-off",
    "areal": "areal",
    "asynchronous": "rollart",
}


class Exam(Struct, frozen=True, kw_only=True):
    """Which problems, and how they are tried."""

    problems: int = 40
    """Of every task, one attempt at each."""
    seed: int = 0
    at_once: int = 64
    temperature: float = 1.0
    """0 takes the likeliest tokens."""


class ExamPlan(Exam, frozen=True, kw_only=True):
    """When a run is evaluated on held-out problems, and when that ends it."""

    every: int = 0
    """Steps between two; also one before the first step and one after the last. 0 makes none."""
    at_once: int = 32
    """Attempts beside those that train."""
    seed: int = 10**9
    """Draws the problems, the same ones every time: those of `artangram eval`."""
    patience: int = 0
    """End the run after this many evaluations in a row without a new best; 0 never does."""
    goal: float | None = None
    """End the run when an evaluation reaches this mean reward."""

    def __post_init__(self) -> None:
        for field in ("every", "patience", "temperature"):
            if getattr(self, field) < 0:
                raise BadInput(
                    f"eval.{field}", f"{getattr(self, field)} is negative", "say 0 or more"
                )
        for field in ("problems", "at_once"):
            if getattr(self, field) < 1:
                raise BadInput(
                    f"eval.{field}", f"{getattr(self, field)} is too few", "say 1 or more"
                )
        if not self.every and (self.patience or self.goal is not None):
            raise BadInput("eval.every", "is missing", "say after how many steps, as every: 20")


class RunSettings(Struct, frozen=True, kw_only=True):
    """One run; `docs/training.md` explains what to turn when."""

    name: str = "run"
    mode: str = "asynchronous"
    steps: int = 100
    seed: int = 0
    groups: int = 16
    """Problems per step."""
    min_groups: int | None = None
    """Train on this many groups when waiting for the rest costs more; on all if unsaid."""
    group_size: int = 8
    """Attempts at each problem."""
    environments: int = 128
    """Attempts that may be under way at once."""
    staleness: int = 1
    """Alpha: tokens this many versions old may still train. For asynchronous runs."""
    extra_groups: int = 0
    extra_siblings: int = 0
    hedge_quantile: float | None = None
    retries: int = 2
    """At an attempt whose infrastructure failed."""
    turn_s: float = 300.0
    """Work that an environment may put into one turn; waiting for resources does not count."""
    agent_s: float = 3600.0
    """Work that one attempt of an agent may take, the model's answers included."""
    gateway: str = ""
    """HOST:PORT where agents reach the model: for commands in the sandboxes of a service, which has
    to permit it. If unsaid, a free port for this machine."""
    temperature: float = 1.0
    """At which environments sample, and agents that name none."""
    needs_signal: bool = False
    """Attempt another problem in place of one whose attempts all did equally well (DAPO's dynamic
    sampling): every group of a batch teaches something."""
    checkpoint_every: int = 10
    """Steps; 0 keeps none."""
    eval: ExamPlan = ExamPlan()
    transcripts: int = 8
    """Attempts of each step whose text is kept, the best and the worst ones; 0 keeps none."""
    report_to: tuple[str, ...] = ()
    """Trackers that hear every step beside the run's own file: wandb, trackio."""
    train: TrainSettings = TrainSettings()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w][\w.-]*", self.name):
            fix = "use letters, digits, dots and dashes"
            raise BadInput("name", f"{self.name!r} is no name of a folder", fix)
        if self.mode not in LOOPS:
            raise BadInput("mode", f"{self.mode!r} is not a mode", f"use one of {', '.join(LOOPS)}")
        if unknown := set(self.report_to) - set(TRACKERS):
            problem = f"{sorted(unknown)} are not trackers"
            raise BadInput("report_to", problem, f"say some of {', '.join(TRACKERS)}")
        for field in ("steps", "groups", "group_size", "environments"):
            if getattr(self, field) < 1:
                raise BadInput(field, f"{getattr(self, field)} is too few", "say 1 or more")
        if self.gateway and not split_port(self.gateway)[1]:
            raise BadInput("gateway", f"{self.gateway!r} is not HOST:PORT", "say 10.1.2.3:8123")
        least, most = TEMPERATURES
        if not least <= self.temperature <= most:
            problem = f"{self.temperature:g} cannot be trained on"
            raise BadInput("temperature", problem, f"say {least:g} to {most:g}")
        if not 1 <= (self.min_groups or self.groups) <= self.groups:
            problem = f"{self.min_groups} of {self.groups} groups"
            raise BadInput("min_groups", problem, f"say 1 to {self.groups}")
        self.plan.limits.check_batch(self.groups)

    @property
    def bound(self) -> Staleness:
        """How old training data may be, and what is done about it."""
        asked = preset(_PRESETS[self.mode])
        if asked.max_staleness == 0:
            return asked
        return structs.replace(asked, max_staleness=self.staleness)

    @property
    def plan(self) -> Plan:
        """What the rollout needs to know."""
        return Plan(
            environments=self.environments,
            group_size=self.group_size,
            staleness=self.bound,
            extra_groups=self.extra_groups,
            extra_siblings=self.extra_siblings,
            spares=Spares(hedge_quantile=self.hedge_quantile),
            phases=PhaseLimits(turn_s=self.turn_s, agent_s=self.agent_s),
            retries=Retries(attempts=self.retries),
            needs_signal=self.needs_signal,
            temperature=self.temperature,
        )


def is_url(teacher: str) -> bool:
    """Whether a teacher is served, and no directory."""
    return teacher.startswith(("http://", "https://"))
