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

ANY = "*"
DEFAULT = "default"
UNKNOWN_DECODE = 128.0
"""Tokens of an answer of a new task."""


class TokenWork(Struct, frozen=True, gc=False):
    """Tokens to be read, and tokens to be written."""

    prefill: float
    decode: float


class Rates(Struct, frozen=True, kw_only=True, gc=False):
    """How fast one replica of a class works."""

    prefill_per_s: float
    decode_per_s: float
    """Of one request, beside as many others as there are lanes."""
    alone_per_s: float | None = None
    """Of one request without company; unless said, twice as fast."""
    lanes: int = 64
    """Requests it writes side by side; reading is one after the other."""
    hit_rate: float = 1.0
    """Of what it has read before: the rest it has forgotten, and reads again."""

    def service_s(self, work: TokenWork) -> float:
        """For a request of its own."""
        return work.prefill / self.prefill_per_s + work.decode / self.decode_per_s

    @property
    def alone_token_s(self) -> float:
        return 1.0 / (self.alone_per_s or 2.0 * self.decode_per_s)

    @property
    def company_token_s(self) -> float:
        """What each other request adds to it."""
        return max(0.0, 1.0 / self.decode_per_s - self.alone_token_s) / self.lanes

    def backlog_s(self, work: TokenWork) -> float:
        """Until a request that comes after `work` has the replica's attention."""
        return work.prefill / self.prefill_per_s + work.decode / (self.decode_per_s * self.lanes)


GUESS = Rates(prefill_per_s=5000.0, decode_per_s=50.0)
"""Of a class without measurements: reading is a hundred times faster than writing."""


class Candidate(Struct, frozen=True, kw_only=True, gc=False):
    """A replica that could take the request."""

    name: str
    hardware: str
    outstanding: TokenWork
    holds: int = 0
    """Tokens of the session that it has read and believes to have kept."""
    takes: int = 0
    """Tokens of the prompt that another has read for it."""
    reads_per_s: float = 0.0
    """Prompt tokens that it got recently, for all its requests."""


class RoutedRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A request, as routing sees it."""

    task: str
    prompt_tokens: int
    most_tokens: int
    """It may write."""


class Observed(Struct, frozen=True, kw_only=True, gc=False):
    """What a request turned out to be."""

    task: str
    hardware: str
    work: TokenWork
    prefill_s: float | None = None
    """`None` when it had to wait for others, so that it is unknown."""
    decode_s: float | None = None


class FadingMean(Struct):
    """A mean that forgets."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        # A plain mean at first, so that the first value does not weigh for long.
        self.value += (value - self.value) * max(1.0 / self.count, _MEMORY)


_MEMORY = 0.05


class Speeds:
    """How fast each class is: as declared, else as measured, else a guess."""

    def __init__(self, declared: Mapping[str, Rates] | None = None) -> None:
        self._declared = dict(declared or {})
        self._prefill: dict[str, FadingMean] = {}
        self._decode: dict[str, FadingMean] = {}

    def of(self, hardware: str) -> Rates:
        if hardware in self._declared:
            return self._declared[hardware]
        decode = _rate(self._decode.get(hardware), GUESS.decode_per_s)
        # Reading can only be measured on an idle replica; until then it is as much faster as usual.
        usual = decode * GUESS.prefill_per_s / GUESS.decode_per_s
        prefill = _rate(self._prefill.get(hardware), usual)
        return Rates(prefill_per_s=prefill, decode_per_s=decode)

    def samples(self, hardware: str) -> float:
        """How often it was measured; declared is as good as always."""
        if hardware in self._declared:
            return float("inf")
        return self._decode[hardware].count if hardware in self._decode else 0

    def learn(self, seen: Observed) -> None:
        if seen.prefill_s and seen.work.prefill > 0:
            book = self._prefill.setdefault(seen.hardware, FadingMean())
            book.add(seen.prefill_s / seen.work.prefill)
        if seen.decode_s and seen.work.decode > 0:
            book = self._decode.setdefault(seen.hardware, FadingMean())
            book.add(seen.decode_s / seen.work.decode)


def _rate(seconds_per_token: FadingMean | None, guess: float) -> float:
    if seconds_per_token is None or seconds_per_token.value <= 0.0:
        return guess
    return 1.0 / seconds_per_token.value


class Habits:
    """What the requests of each task are made of."""

    def __init__(self) -> None:
        self._prefill: dict[str, FadingMean] = {}
        self._decode: dict[str, FadingMean] = {}

    def learn(self, seen: Observed) -> None:
        self._prefill.setdefault(seen.task, FadingMean()).add(seen.work.prefill)
        self._decode.setdefault(seen.task, FadingMean()).add(seen.work.decode)

    def decode(self, task: str) -> float:
        return self._decode[task].value if task in self._decode else UNKNOWN_DECODE

    def answer(self) -> float:
        """Tokens of the answer that a token is part of, on average.

        Replicas spend their time on long answers, however many short ones they give.
        """
        books = self._decode.values()
        written = sum(one.count * one.value for one in books)
        if not written:
            return UNKNOWN_DECODE
        return sum(one.count * one.value**2 for one in books) / written

    def typical(self, task: str) -> TokenWork | None:
        """`None` until one has ended."""
        if task not in self._decode:
            return None
        return TokenWork(self._prefill[task].value, self._decode[task].value)


class Costs:
    """What a request costs on a replica, in seconds: its own, and those that others lose by it."""

    def __init__(self, speeds: Speeds, habits: Habits) -> None:
        self.speeds = speeds
        self.habits = habits

    def work(self, wanted: RoutedRequest, one: Candidate) -> TokenWork:
        """What the request is expected to be for that replica."""
        kept = max(self.speeds.of(one.hardware).hit_rate * one.holds, one.takes)
        return TokenWork(max(0.0, wanted.prompt_tokens - kept), self.answer(wanted))

    def answer(self, wanted: RoutedRequest) -> float:
        """Tokens it is expected to write."""
        return min(self.habits.decode(wanted.task), float(wanted.most_tokens))

    def whole_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """Of all of it on one replica, for itself and for others."""
        there_s = self.read_s(wanted, one)
        return self.written_s(wanted, one, there_s=there_s) + self.others_s(wanted, one)

    def read_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """Until it has read the prompt."""
        rates = self.speeds.of(one.hardware)
        unread = self.work(wanted, one).prefill
        return rates.backlog_s(one.outstanding) + unread / rates.prefill_per_s

    def written_s(self, wanted: RoutedRequest, one: Candidate, *, there_s: float) -> float:
        """Until it has written the answer to what has been read in `there_s`."""
        rates = self.speeds.of(one.hardware)
        begins_s = max(there_s, rates.backlog_s(one.outstanding))
        writes = 1.0 - min(_MOST_READING, one.reads_per_s / rates.prefill_per_s)
        return begins_s + self.answer(wanted) / (rates.decode_per_s * writes)

    def others_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """What others lose: while it is read, no answer on that replica goes on."""
        answers = one.outstanding.decode / self.habits.answer()
        unread = self.work(wanted, one).prefill
        return answers * unread / self.speeds.of(one.hardware).prefill_per_s


_MOST_READING = 0.9
"""Largest share of its time that a replica is assumed to read: a burst of prompts says little
about what follows."""


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
