"""Whether one replica reads a prompt and another writes the answer, and which two.

- Reading is arithmetic and writing is memory traffic: the hardware that is best at one is often not
  the best at the other. But what was read has to move between them, and that takes time.
- A task with declared halves is split whenever a replica of each is there. `AutoSplit` splits a
  request only when it is predicted to cost clearly less that way, the move included: its own time,
  and the time of those whose answers stand still while it is read.
- Only replicas of one kind understand what the other has read.
- The writer is chosen again when the prompt has been read: replicas come and go meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from artangram.core.affinity import (
    ANY,
    DEFAULT,
    Candidate,
    Choice,
    Habits,
    Learned,
    Speeds,
    Wanted,
    Work,
)
from artangram.core.errors import BadInput

MOVE_TOKEN_S = 3e-6
"""To move one token between replicas, until it was seen: 150 kB at 50 GB per second."""


class Halves(Struct, frozen=True, kw_only=True, gc=False):
    """A person said which class reads and which one writes."""

    prefill: str
    decode: str


class AutoSplit(Struct, frozen=True, kw_only=True, gc=False):
    """Nobody said: split what is predicted to gain by it."""

    margin: float = 0.1
    """A gain below this share is not worth a second replica."""


Rule = Halves | AutoSplit


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
            return Halves(prefill=names[0], decode=names[1])
    fix = "write auto, or name two hardware classes as prefill and decode"
    raise BadInput(f"split.{task}", f"{value!r} is no split", fix)


class Half(Struct, frozen=True, gc=False):
    """A replica that could read or write."""

    replica: Candidate
    kind: str
    """Of what it hands over and takes; empty if it does neither."""


class Reading(Struct, frozen=True, kw_only=True, gc=False):
    """A request that is split: who reads it, and which class is to write."""

    reader: Choice
    decode: str


class Splitter:
    """Chooses the halves, and learns what a move takes. No clock, no I/O."""

    def __init__(self, splits: Splits, *, speeds: Speeds, habits: Habits) -> None:
        self._splits = splits
        self.speeds = speeds
        self._habits = habits
        self._move = Learned()

    def rule(self, task: str) -> Rule | None:
        return self._splits.rule(task)

    @property
    def move_token_s(self) -> float:
        return self._move.value if self._move.count else MOVE_TOKEN_S

    def learn(self, *, tokens: int, seconds: float) -> None:
        """So long a move took."""
        if tokens:
            self._move.add(seconds / tokens)

    def reading(self, wanted: Wanted, halves: Sequence[Half]) -> Reading | None:
        """Who reads the request for another; `None` when one replica does all of it."""
        rule = self.rule(wanted.task)
        if rule is None or wanted.prompt_tokens < 2:
            return None  # The last token is the writer's.
        prefill, decode = (rule.prefill, rule.decode) if isinstance(rule, Halves) else (ANY, ANY)
        reader = self._reader(wanted, halves, prefill=prefill, decode=decode)
        if reader is None or (
            isinstance(rule, AutoSplit) and not self._gains(rule, wanted, halves, reader=reader)
        ):
            return None
        work = Work(_unread(wanted, reader.replica), 0.0)
        return Reading(reader=_choice(reader.replica, work), decode=decode)

    def writer(
        self, wanted: Wanted, candidates: Sequence[Candidate], *, decode: str
    ) -> Choice | None:
        """Who writes what was read, now that it has been: any class rather than none.

        What a candidate could take over it `holds`.
        """
        fitting = [one for one in candidates if _is_of(decode, one)]
        best = min(fitting or candidates, key=lambda one: self._cost_s(wanted, one), default=None)
        if best is None:
            return None
        work = Work(_unread(wanted, best), self._answer(wanted))
        return _choice(best, work, instead_of="" if fitting else decode)

    def _reader(
        self, wanted: Wanted, halves: Sequence[Half], *, prefill: str, decode: str
    ) -> Half | None:
        """Of those that read for somebody, the one that is soonest through."""
        readers = [
            one
            for one in halves
            if _is_of(prefill, one.replica) and _others(one, halves, decode=decode)
        ]
        return min(
            readers,
            key=lambda one: self._read_s(wanted, one.replica) + self._others_s(wanted, one.replica),
            default=None,
        )

    def _gains(
        self, auto: AutoSplit, wanted: Wanted, halves: Sequence[Half], *, reader: Half
    ) -> bool:
        there_s = self._read_s(wanted, reader.replica) + wanted.prompt_tokens * self.move_token_s
        writers = [one.replica for one in _others(reader, halves, decode=ANY)]
        halved_s = min(self._written_s(wanted, one, there_s) for one in writers)
        halved_s += self._others_s(wanted, reader.replica)
        whole_s = min(self._cost_s(wanted, one.replica) for one in halves)
        return halved_s < whole_s * (1.0 - auto.margin)

    def _read_s(self, wanted: Wanted, one: Candidate) -> float:
        """Until it has read the request."""
        rates = self.speeds.of(one.hardware)
        return rates.backlog_s(one.outstanding) + _unread(wanted, one) / rates.prefill_per_s

    def _written_s(self, wanted: Wanted, one: Candidate, there_s: float) -> float:
        """Until it has written the answer to what is there in `there_s`."""
        rates = self.speeds.of(one.hardware)
        begins_s = max(there_s, rates.backlog_s(one.outstanding))
        return begins_s + self._answer(wanted) / rates.decode_per_s

    def _others_s(self, wanted: Wanted, one: Candidate) -> float:
        """What others lose: while it reads, nobody's answer goes on."""
        answers = one.outstanding.decode / self._habits.answer()
        return answers * _unread(wanted, one) / self.speeds.of(one.hardware).prefill_per_s

    def _cost_s(self, wanted: Wanted, one: Candidate) -> float:
        """Of doing all of it there, for itself and for others: as routing counts it."""
        done_in_s = self._written_s(wanted, one, self._read_s(wanted, one))
        return done_in_s + self._others_s(wanted, one)

    def _answer(self, wanted: Wanted) -> float:
        """Tokens it is expected to write."""
        return min(self._habits.decode(wanted.task), float(wanted.most_tokens))


def _is_of(hardware: str, one: Candidate) -> bool:
    return hardware in (ANY, one.hardware)


def _others(reader: Half, halves: Sequence[Half], *, decode: str) -> list[Half]:
    """Those that could write what this one has read."""
    return [
        one
        for one in halves
        if one is not reader
        and one.kind
        and one.kind == reader.kind
        and _is_of(decode, one.replica)
    ]


def _unread(wanted: Wanted, one: Candidate) -> float:
    return float(max(0, wanted.prompt_tokens - one.holds))


def _choice(one: Candidate, work: Work, *, instead_of: str = "") -> Choice:
    return Choice(replica=one.name, hardware=one.hardware, work=work, instead_of=instead_of)
