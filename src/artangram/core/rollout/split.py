"""Whether one replica reads a prompt and another writes the answer, and which two.

- Reading is arithmetic and writing is memory traffic: the hardware that is best at one is often not
  the best at the other. But what was read has to move between them, and that takes time.
- A task with declared classes is split whenever each has a replica. With `AutoSplit` the classes
  are those of the plan for all such tasks that is predicted to have the shortest turns, the move
  included; no split unless it is clearly better. Plans are compared again after some requests.
- Only replicas of the same kind can exchange caches.
- The writer is chosen again when the prompt has been read: replicas come and go meanwhile.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import ANY, DEFAULT, Choice
from artangram.core.rollout.costs import Candidate, Costs, FadingMean, RoutedRequest, TokenWork
from artangram.core.rollout.plans import Planner, Pool, TaskDemand

MOVE_TOKEN_S = 3e-6
"""To move one token between replicas, until it was seen: 150 kB at 50 GB per second."""


class PrefillDecode(Struct, frozen=True, kw_only=True, gc=False):
    """The user named the class that reads and the one that writes."""

    prefill: str
    decode: str


class AutoSplit(Struct, frozen=True, kw_only=True, gc=False):
    """Split the tasks that are predicted to gain."""

    margin: float = 0.1
    """Turns must be shorter by this share before anything is split."""
    look_every: int = 128
    """Requests between two comparisons of plans."""


Rule = PrefillDecode | AutoSplit


class Splits(Struct, frozen=True, kw_only=True):
    """The rule of each task; `DEFAULT` is for those that are not named. No rule: never split."""

    tasks: Mapping[str, Rule] = {}

    def rule(self, task: str) -> Rule | None:
        return self.tasks.get(task, self.tasks.get(DEFAULT))


NEVER = Splits()


def splits_of(value: str | Mapping[str, Any]) -> Splits:
    """From a config: `auto`, or task -> `auto` or `{prefill: CLASS, decode: CLASS}`."""
    rules = {DEFAULT: value} if isinstance(value, str) else value
    return Splits(tasks={task: _rule(task, rule) for task, rule in rules.items()})


def _rule(task: str, value: object) -> Rule:
    if value == "auto":
        return AutoSplit()
    if isinstance(value, Mapping) and value.keys() == {"prefill", "decode"}:
        names = (value["prefill"], value["decode"])
        if all(isinstance(name, str) and name for name in names):
            return PrefillDecode(prefill=names[0], decode=names[1])
    fix = "write auto, or name two hardware classes as prefill and decode"
    raise BadInput(f"split.{task}", f"{value!r} is no split", fix)


class DecodeChoice(Struct, frozen=True, gc=False):
    """A replica that could read or write."""

    replica: Candidate
    kind: str
    """Of the caches it exchanges; empty if it exchanges none."""
    turns: int = 0
    """That it has now."""


class PrefillDecision(Struct, frozen=True, kw_only=True, gc=False):
    """A request that is split: the replica that reads it, and the class that writes."""

    reader: Choice
    decode: str


class Splitter:
    """Chooses both replicas, and learns how long a move takes. No clock, no I/O."""

    def __init__(self, splits: Splits, *, costs: Costs) -> None:
        self._splits = splits
        self.costs = costs
        self._move = FadingMean()
        self._turns = FadingMean()
        self._prompts: dict[str, FadingMean] = {}
        self._planned: dict[str, PrefillDecode] = {}

    def rule(self, task: str) -> Rule | None:
        return self._splits.rule(task)

    @property
    def move_token_s(self) -> float:
        return self._move.value if self._move.count else MOVE_TOKEN_S

    def learn(self, *, tokens: int, seconds: float) -> None:
        """Learn how long a move took."""
        if tokens:
            self._move.add(seconds / tokens)

    def reading(
        self, wanted: RoutedRequest, stages: Sequence[DecodeChoice]
    ) -> PrefillDecision | None:
        """The replica that reads for another one; `None` when one replica does both."""
        rule = self.rule(wanted.task)
        if rule is None or wanted.prompt_tokens < 2:
            return None  # The writer reads the last token itself.
        if isinstance(rule, AutoSplit):
            self._look(rule, wanted, stages)
            if wanted.task not in self._planned:
                return None
            rule = self._planned[wanted.task]
        reader = self._reader(wanted, stages, rule=rule)
        if reader is None:
            return None
        work = TokenWork(self.costs.work(wanted, reader.replica).prefill, 0.0)
        return PrefillDecision(reader=_choice(reader.replica, work), decode=rule.decode)

    def writer(
        self, wanted: RoutedRequest, candidates: Sequence[Candidate], *, decode: str
    ) -> Choice | None:
        """The replica that writes, now that the prompt has been read: any class rather than none.

        `takes` are the tokens that a candidate could take over.
        """
        fitting = [one for one in candidates if _is_of(decode, one)]
        best = min(
            fitting or candidates, key=lambda one: self.costs.whole_s(wanted, one), default=None
        )
        if best is None:
            return None
        work = self.costs.work(wanted, best)
        return _choice(best, work, instead_of="" if fitting else decode)

    def _reader(
        self, wanted: RoutedRequest, stages: Sequence[DecodeChoice], *, rule: PrefillDecode
    ) -> DecodeChoice | None:
        """The reader that is done first."""
        readers = [
            one
            for one in stages
            if _is_of(rule.prefill, one.replica) and _others(one, stages, decode=rule.decode)
        ]
        return min(readers, key=lambda one: self._reading_s(wanted, one.replica), default=None)

    def _reading_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """As if it had kept all that it has read.

        Elsewhere all of it is read again, and the time of readers is what others wait for.
        """
        keeps = structs.replace(one, takes=one.holds)
        return self.costs.read_s(wanted, keeps) + self.costs.others_s(wanted, keeps)

    def _look(self, auto: AutoSplit, wanted: RoutedRequest, stages: Sequence[DecodeChoice]) -> None:
        """Take note of the request, and now and then see whether another plan is better."""
        self._turns.add(1.0 + sum(one.turns for one in stages))
        self._prompts.setdefault(wanted.task, FadingMean()).add(wanted.prompt_tokens)
        if self._turns.count % auto.look_every == 0:
            self._planned = self._plan(auto, stages)

    def _plan(self, auto: AutoSplit, stages: Sequence[DecodeChoice]) -> dict[str, PrefillDecode]:
        pools, demands = self._pools(stages), self._demands()
        if len(pools) < 2 or not demands:
            return {}
        planner = Planner(pools, demands, turns=self._turns.value)
        whole_s, _ = planner.best(splits=False)
        halved_s, plan = planner.best(splits=True)
        if halved_s >= whole_s * (1.0 if self._planned else 1.0 - auto.margin):
            return {}
        return {
            task: PrefillDecode(prefill=flow.reads, decode=flow.writes)
            for task, (flow, *_) in plan.items()
            if flow.is_split
        }

    def _pools(self, stages: Sequence[DecodeChoice]) -> dict[str, Pool]:
        counts = Counter(one.replica.hardware for one in stages if one.kind)
        return {
            name: Pool(replicas=count, rates=self.costs.speeds.of(name))
            for name, count in counts.items()
        }

    def _demands(self) -> dict[str, TaskDemand]:
        """Of the tasks of which anything is known."""
        typical = {task: self.costs.habits.typical(task) for task in self._prompts}
        known = {task: work for task, work in typical.items() if work is not None}
        total = sum(self._prompts[task].count for task in known)
        return {
            task: TaskDemand(
                share=self._prompts[task].count / total,
                prefill=work.prefill,
                decode=work.decode,
                move_s=self._prompts[task].value * self.move_token_s,
                context=self._prompts[task].value,
            )
            for task, work in known.items()
        }


def _is_of(hardware: str, one: Candidate) -> bool:
    return hardware in (ANY, one.hardware)


def _others(
    reader: DecodeChoice, stages: Sequence[DecodeChoice], *, decode: str
) -> list[DecodeChoice]:
    """Those that could write what this one has read."""
    return [
        one
        for one in stages
        if one is not reader
        and one.kind
        and one.kind == reader.kind
        and _is_of(decode, one.replica)
    ]


def _choice(one: Candidate, work: TokenWork, *, instead_of: str = "") -> Choice:
    return Choice(replica=one.name, hardware=one.hardware, work=work, instead_of=instead_of)
