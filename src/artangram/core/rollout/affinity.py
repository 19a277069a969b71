"""Which replica answers a request: the hardware that fits its task, there the one it costs least.

- A declared task goes to the first of its classes that has a replica for it. Any class but the
  first is a fallback, and the choice says so: nothing falls back silently.
- `Auto` learns what a task's requests are made of and how fast each class reads and writes, and
  gives the task the class that would serve it soonest. A task changes its class only for a clear
  gain; a request leaves its task's class when it would cost less elsewhere.
- Within a class the replica wins where the request costs least: the seconds until it is done, and
  those that all answers written there lose while it is read. One that has read the session before
  need not read it again, so sessions stay where they are while that is worth the wait; and what
  has much to be read keeps away from replicas that read slowly for many. An answer takes the
  longer, the more its replica reads.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.rollout.costs import (
    Candidate,
    Costs,
    Habits,
    Observed,
    Rates,
    RoutedRequest,
    Speeds,
    TokenWork,
)

ANY = "*"
DEFAULT = "default"


class Choice(Struct, frozen=True, kw_only=True, gc=False):
    replica: str
    hardware: str
    work: TokenWork
    """What it is expected to be for that replica."""
    instead_of: str = ""
    """The class that the task prefers, when that one could not take it."""
    spilled_from: str = ""
    """The class that the task prefers, when the request cost less on another."""


class Declared(Struct, frozen=True, kw_only=True):
    """The user named the classes of a task, best first; `ANY` stands for all the others."""

    tasks: Mapping[str, tuple[str, ...]]

    def listed(self, task: str) -> tuple[str, ...]:
        return self.tasks.get(task, self.tasks.get(DEFAULT, (ANY,)))


class Auto(Struct, frozen=True, kw_only=True):
    """Learn which class fits."""

    margin: float = 0.2
    """A gain below this share is noise: no task changes its class for it."""
    leave: float = 0.02
    """A request leaves its task's class for less: each is weighed with the load of the moment."""
    probes: int = 3
    """Requests that a class must have served before it is judged."""


def affinity_of(value: str | Mapping[str, str | Sequence[str]]) -> Declared | Auto:
    """From a config: `auto`, or task -> class or list of classes.

    A class by itself means: this one, else any. A list means: only these, in this order.
    """
    if value == "auto":
        return Auto()
    if isinstance(value, str):
        fix = "write auto, or a mapping of task to class"
        raise BadInput("affinity", f"{value!r} is no affinity", fix)
    tasks = {}
    for task, classes in value.items():
        tasks[task] = (classes, ANY) if isinstance(classes, str) else tuple(classes)
        if not tasks[task] or not all(isinstance(name, str) and name for name in tasks[task]):
            fix = "name at least one hardware class"
            raise BadInput(f"affinity.{task}", "names no class", fix)
    return Declared(tasks=tasks)


class Router:
    """Chooses, and learns from what it chose. No clock, no I/O."""

    def __init__(
        self, affinity: Declared | Auto, *, rates: Mapping[str, Rates] | None = None
    ) -> None:
        self._affinity = affinity
        self._homes: dict[str, str] = {}
        self._probing: dict[str, int] = {}
        self.speeds = Speeds(rates)
        self.habits = Habits()
        self.costs = Costs(self.speeds, self.habits)

    def home(self, task: str) -> str | None:
        """The class that `Auto` has given the task."""
        return self._homes.get(task)

    def learn(self, seen: Observed) -> None:
        self._probing.pop(seen.hardware, None)
        self.speeds.learn(seen)
        self.habits.learn(seen)

    def lost(self, hardware: str) -> None:
        """A replica of that class is gone, with its requests."""
        self._probing.pop(hardware, None)

    def choose(self, wanted: RoutedRequest, candidates: Sequence[Candidate]) -> Choice | None:
        """`None` when none of the candidates may serve the task."""
        best = self._best_of_each_class(wanted, candidates)
        if not best:
            return None
        if isinstance(self._affinity, Auto):
            return self._learned_choice(self._affinity, wanted, best)
        return self._declared_choice(self._affinity, wanted, best)

    def _declared_choice(
        self, affinity: Declared, wanted: RoutedRequest, best: "dict[str, _Prediction]"
    ) -> Choice | None:
        listed = affinity.listed(wanted.task)
        others = [name for name in best if name not in listed]
        for rank, name in enumerate(listed):
            equals = others if name == ANY else [name]
            if found := [best[hardware] for hardware in equals if hardware in best]:
                preferred = listed[0] if rank else ""
                return min(found, key=_cost_s).choice(instead_of=preferred)
        return None

    def _learned_choice(
        self, auto: Auto, wanted: RoutedRequest, best: "dict[str, _Prediction]"
    ) -> Choice:
        known = {name: one for name, one in best.items() if self._is_known(auto, name)}
        if (probe := self._probe(auto, best)) is not None or not known:
            return best[probe].choice() if probe else min(best.values(), key=_cost_s).choice()
        cheapest = min(known.values(), key=_cost_s)
        home = self._settled(auto, wanted.task, known)
        if home is None:
            return cheapest.choice()
        if home not in known:
            return cheapest.choice(instead_of=home)
        if cheapest.cost_s < known[home].cost_s * (1.0 - auto.leave):
            return cheapest.choice(spilled_from=home if cheapest.hardware != home else "")
        return known[home].choice()

    def _is_known(self, auto: Auto, hardware: str) -> bool:
        return self.speeds.samples(hardware) >= auto.probes

    def _probe(self, auto: Auto, best: "dict[str, _Prediction]") -> str | None:
        """A class to be tried. Few at a time: what is unknown may be slow."""
        for hardware in best:
            under_way = self._probing.get(hardware, 0)
            if not self._is_known(auto, hardware) and under_way < auto.probes:
                self._probing[hardware] = under_way + 1
                return hardware
        return None

    def _settled(self, auto: Auto, task: str, best: "dict[str, _Prediction]") -> str | None:
        """The task's class: the one it has, unless another serves it clearly faster."""
        typical = self.habits.typical(task)
        if typical is None:
            return None
        seconds = {hardware: self.speeds.of(hardware).service_s(typical) for hardware in best}
        fastest = min(seconds, key=seconds.__getitem__)
        home = self._homes.setdefault(task, fastest)
        if home in seconds and seconds[fastest] < seconds[home] * (1.0 - auto.margin):
            self._homes[task] = home = fastest
        return home

    def _best_of_each_class(
        self, wanted: RoutedRequest, candidates: Sequence[Candidate]
    ) -> "dict[str, _Prediction]":
        best: dict[str, _Prediction] = {}
        for one in candidates:
            cost_s = self.costs.whole_s(wanted, one)
            if one.hardware not in best or cost_s < best[one.hardware].cost_s:
                work = self.costs.work(wanted, one)
                best[one.hardware] = _Prediction(one.name, one.hardware, work, cost_s)
        return best


class _Prediction(Struct, frozen=True, gc=False):
    name: str
    hardware: str
    work: TokenWork
    cost_s: float

    def choice(self, *, instead_of: str = "", spilled_from: str = "") -> Choice:
        return Choice(
            replica=self.name,
            hardware=self.hardware,
            work=self.work,
            instead_of=instead_of,
            spilled_from=spilled_from,
        )


def _cost_s(prediction: _Prediction) -> float:
    return prediction.cost_s
