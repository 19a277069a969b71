"""Which replica answers a request: the hardware that fits its task, there the one it costs least.

- A declared task goes to the first of its classes that has a replica for it. Any class but the
  first is a fallback, and the choice says so: nothing falls back silently.
- `Auto` learns what a task's requests are made of and how fast each class reads and writes. A plan
  for all tasks (`shares`) says which share of each belongs where, and what a turn costs all others
  on another class. A request leaves the plan only where it costs less in all: the wait now, the
  prefix that is read again, and the price of its session's later turns.
- Within a class the replica wins where the request costs least: the seconds until it is done, and
  those that all answers written there lose while it is read. One that has read the session before
  need not read it again, so sessions stay where they are while that is worth the wait; and what
  has much to be read keeps away from replicas that read slowly for many. An answer takes the
  longer, the more its replica reads.
"""

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct, structs

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
from artangram.core.rollout.shares import ClassShares
from artangram.core.rollout.workingset import WorkingSets

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
    reread: int = 0
    """Tokens of the session that another replica has read, and this one has not."""
    cost_s: float = 0.0
    """What was expected of it here: its own seconds and those that others lose."""
    next_s: float | None = None
    """The same of the best replica of any other class, its price included."""

    @property
    def explained(self) -> str:
        """Why this replica, in a sentence."""
        why = f"{self.replica} costs {self.cost_s:.2f} s"
        if self.next_s is not None:
            why += f", the best of another class {self.next_s:.2f} s"
        if self.instead_of:
            why += f"; {self.instead_of} has no replica"
        if self.spilled_from:
            why += f"; the plan has it on {self.spilled_from}"
        if self.reread:
            why += f"; {self.reread} tokens are read again"
        return why


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
    replan: float = 0.02
    """Turns must be shorter by this share before another plan is made."""
    look_every: int = 512
    """Requests between two plans."""
    paces: bool = True
    """Sessions begin when a replica has room for them (`workingset`)."""


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
        auto = affinity if isinstance(affinity, Auto) else Auto()
        self.shares = ClassShares(self.costs, margin=auto.replan, look_every=auto.look_every)
        self._paces = isinstance(affinity, Auto) and affinity.paces
        self._sets = WorkingSets(self.speeds)

    def home(self, task: str) -> str | None:
        """The class that `Auto` has given the task, or most of it."""
        return self.shares.home(task) or self._homes.get(task)

    def learn(self, seen: Observed) -> None:
        self._probing.pop(seen.hardware, None)
        self.speeds.learn(seen)
        self.habits.learn(seen)

    def lost(self, hardware: str, *, replica: str) -> None:
        """A replica of that class is gone, with its requests."""
        self._probing.pop(hardware, None)
        self._sets.lost(replica)

    def ended(self, session: str) -> None:
        """The session is closed."""
        self._sets.end(session)

    def may_begin(self, wanted: RoutedRequest, candidates: Sequence[Candidate]) -> bool:
        """Whether a session may have its first turn now; else it waits until another one ends."""
        return not (self._paces and candidates) or self._sets.may_begin(wanted, candidates)

    def choose(self, wanted: RoutedRequest, candidates: Sequence[Candidate]) -> Choice | None:
        """`None` when none of the candidates may serve the task."""
        if not candidates:
            return None
        held = max(one.holds for one in candidates)
        if isinstance(self._affinity, Auto):
            self.habits.asked(wanted)
            self.shares.saw(wanted, candidates)
            return self._learned_choice(self._affinity, wanted, candidates, held=held)
        best = self._best_of_each_class(wanted, candidates)
        return self._declared_choice(self._affinity, wanted, best, held=held)

    def _declared_choice(
        self,
        affinity: Declared,
        wanted: RoutedRequest,
        best: "dict[str, _Prediction]",
        *,
        held: int,
    ) -> Choice | None:
        listed = affinity.listed(wanted.task)
        others = [name for name in best if name not in listed]
        for rank, name in enumerate(listed):
            equals = others if name == ANY else [name]
            if found := [best[hardware] for hardware in equals if hardware in best]:
                preferred = listed[0] if rank else ""
                return min(found, key=_cost_s).choice(held=held, instead_of=preferred)
        return None

    def _learned_choice(
        self, auto: Auto, wanted: RoutedRequest, candidates: Sequence[Candidate], *, held: int
    ) -> Choice:
        roomy = self._sets.open_to(wanted, candidates) if auto.paces else candidates
        best = self._best_of_each_class(wanted, roomy)
        classes = {one.hardware for one in candidates}
        choice = self._learned_best(auto, wanted, best, classes=classes, held=held)
        self._sets.place(wanted, choice.replica)
        return choice

    def _learned_best(
        self,
        auto: Auto,
        wanted: RoutedRequest,
        best: "dict[str, _Prediction]",
        *,
        classes: Set[str],
        held: int,
    ) -> Choice:
        """Of those with room. `classes` are all that have a replica."""
        known = {name: one for name, one in best.items() if self._is_known(auto, name)}
        if (probe := self._probe(auto, best)) is not None or not known:
            return (best[probe] if probe else min(best.values(), key=_cost_s)).choice(held=held)
        known = {name: self._priced(wanted, one) for name, one in known.items()}
        cheapest = min(known.values(), key=_cost_s)
        home = self._settled(auto, wanted.task, known)
        if home in known and cheapest.cost_s >= known[home].cost_s * (1.0 - auto.leave):
            cheapest = known[home]
        others = [one.cost_s for one in known.values() if one is not cheapest]
        self.shares.went(wanted.task, cheapest.hardware)
        is_planned = cheapest.hardware in (self.shares.of(wanted.task) or (home,))
        is_there = home in classes
        return cheapest.choice(
            held=held,
            next_s=min(others, default=None),
            instead_of="" if home is None or is_there else home,
            spilled_from=home if home is not None and is_there and not is_planned else "",
        )

    def _priced(self, wanted: RoutedRequest, one: "_Prediction") -> "_Prediction":
        """With what this turn and its session's later ones cost the others there."""
        price_s = self.shares.price_s(wanted.task, one.hardware)
        if not price_s:
            return one
        cost_s = one.cost_s + price_s * (1.0 + self.habits.turns_left(wanted))
        return structs.replace(one, cost_s=cost_s)

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
        """The task's class: that of the plan, else the one that it has and none beats clearly."""
        if (planned := self.shares.home(task)) is not None:
            return planned
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
                best[one.hardware] = _Prediction(one.name, one.hardware, work, cost_s, one.holds)
        return best


class _Prediction(Struct, frozen=True, gc=False):
    name: str
    hardware: str
    work: TokenWork
    cost_s: float
    holds: int

    def choice(
        self,
        *,
        held: int,
        next_s: float | None = None,
        instead_of: str = "",
        spilled_from: str = "",
    ) -> Choice:
        """`held` are the most tokens of the session that any replica has read."""
        return Choice(
            replica=self.name,
            hardware=self.hardware,
            work=self.work,
            instead_of=instead_of,
            spilled_from=spilled_from,
            reread=max(0, held - self.holds),
            cost_s=self.cost_s,
            next_s=next_s,
        )


def _cost_s(prediction: _Prediction) -> float:
    return prediction.cost_s
