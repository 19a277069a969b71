"""One line of a trace: the records it holds, and their JSON.

- Records are valid; `LineDecoder` checks the input and raises `BadInput` with the field.
- Equal needs are one object: a million actions hold a handful of them.
"""

import re
from sys import intern
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.scheduling.action import MOST_PRIORITY, MOST_WORK_S
from artangram.core.scheduling.needs import Amounts, Needs, parse_needs
from artangram.core.scheduling.speedup import Amdahl, Power, Speedup
from artangram.observe.badfile import DECODE_ERRORS, in_our_words
from artangram.observe.duplicatekeys import refuse_twice

MOST_NEEDS = 1 << 16
"""Distinct needs remembered while reading; more only cost memory, so then all are forgotten."""


class TraceAction(Struct, frozen=True, kw_only=True, gc=False):
    """One action as it happened: `work_s` is its true duration on one unit."""

    kind: str
    needs: Needs
    work_s: float
    fail_at_s: float | None = None
    """It fails after this run time, unless it ends before."""
    reward: bool = False
    timeout_s: float | None = None
    repeatable: bool = False
    priority: int = 0
    tokens: int | None = None
    """What it used of an API that limits tokens."""


class TraceTurn(Struct, frozen=True, kw_only=True, gc=False):
    """The model thinks, then the actions run one after the other."""

    think_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    actions: tuple[TraceAction, ...] = ()


class TraceTrajectory(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt; it starts `arrive_s` after its step begins."""

    trajectory: TrajectoryId
    turns: tuple[TraceTurn, ...]
    job: JobId = JobId("default")
    task: str = ""
    problem: str = ""
    """What it attempts; siblings of a group attempt the same. Unnamed if empty."""
    step: int = 0
    arrive_s: float = 0.0
    memory_mb: int = 0


# The file's shape. `needs` and `speedup` stay raw bytes: they repeat, and bytes are a cheap key.
# Encoded again, a record has the keys its line had, but for defaults that an action or turn names.
Seconds = Annotated[float, Meta(ge=0, le=MOST_WORK_S)]
_Limit = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(min_length=1)]
_Priority = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
_ABSENT = Raw()


class _Action(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    kind: _Name
    needs: Raw
    work_s: Seconds
    elastic: str | None = None
    speedup: Raw = _ABSENT
    service: str | None = None
    fail_at_s: _Limit | None = None
    reward: bool = False
    timeout_s: _Limit | None = None
    repeatable: bool = False
    priority: _Priority = 0
    tokens: _Count | None = None


class _Turn(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    think_s: Seconds = 0.0
    prompt_tokens: _Count = 0
    output_tokens: _Count = 0
    actions: tuple[_Action, ...] = ()


class _Trajectory(Struct, forbid_unknown_fields=True, gc=False):
    trajectory: _Name
    turns: Annotated[tuple[_Turn, ...], Meta(min_length=1)]
    job: _Name | UnsetType = UNSET
    task: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    step: _Count | UnsetType = UNSET
    arrive_s: Seconds | UnsetType = UNSET
    memory_mb: _Count | UnsetType = UNSET


class LineDecoder:
    """Turns what a file says into records, with one `Needs` for all equal ones."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Trajectory).decode
        self._known: dict[tuple[bytes, str | None, bytes, str | None], Needs] = {}

    def decode(self, line: bytes) -> TraceTrajectory:
        """The trajectory of one line. Raises `BadInput`."""
        try:
            raw = self._decode(line)
            refuse_twice(line, raw)
        except DECODE_ERRORS as error:
            raise in_our_words(error, _fields_at) from None
        return TraceTrajectory(
            trajectory=TrajectoryId(raw.trajectory),
            turns=tuple([self._turn(turn, index) for index, turn in enumerate(raw.turns)]),
            job=JobId(intern(raw.job or "default")),
            task=intern(raw.task or ""),
            problem=intern(raw.problem or ""),
            step=raw.step or 0,
            arrive_s=raw.arrive_s or 0.0,
            memory_mb=raw.memory_mb or 0,
        )

    def _turn(self, raw: _Turn, index: int) -> TraceTurn:
        actions = []
        for action in raw.actions:
            try:
                actions.append(self._action(action))
            except BadInput as error:
                raise error.within(f"turns[{index}].actions[{len(actions)}]") from None
        return TraceTurn(
            think_s=raw.think_s,
            prompt_tokens=raw.prompt_tokens,
            output_tokens=raw.output_tokens,
            actions=tuple(actions),
        )

    def _action(self, raw: _Action) -> TraceAction:
        return TraceAction(
            kind=intern(raw.kind),
            needs=self._needs(raw),
            work_s=raw.work_s,
            fail_at_s=raw.fail_at_s,
            reward=raw.reward,
            timeout_s=raw.timeout_s,
            repeatable=raw.repeatable,
            priority=raw.priority,
            tokens=raw.tokens,
        )

    def _needs(self, raw: _Action) -> Needs:
        key = (bytes(raw.needs), raw.elastic, bytes(raw.speedup), raw.service)
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) >= MOST_NEEDS:
            self._known.clear()
        self._known[key] = needs = _parse(raw)
        return needs


def _parse(raw: _Action) -> Needs:
    needs = _decoded(raw.needs, "needs")
    speedup = _decoded(raw.speedup, "speedup") if bytes(raw.speedup) else None
    return parse_needs(needs, elastic=raw.elastic, speedup=speedup, service=raw.service)


def _decoded(raw: Raw, field: str) -> Any:
    try:
        value = msgspec.json.decode(raw)
        refuse_twice(bytes(raw), value)
    except DECODE_ERRORS as error:
        raise in_our_words(error, _fields_at) from None
    except BadInput as error:
        raise error.within(field) from None
    return value


def _fields_at(place: str) -> list[str]:
    if re.search(r"actions\[.*\]$", place):
        return list(_Action.__struct_fields__)
    if place:
        return list(_Turn.__struct_fields__)
    return list(_Trajectory.__struct_fields__)


def encode_line(trajectory: TraceTrajectory) -> bytes:
    """What `LineDecoder` reads back as an equal record."""
    raw = _Trajectory(
        job=trajectory.job,
        task=trajectory.task,
        problem=trajectory.problem or UNSET,
        trajectory=trajectory.trajectory,
        step=trajectory.step,
        arrive_s=trajectory.arrive_s,
        memory_mb=trajectory.memory_mb,
        turns=tuple(_raw_turn(turn) for turn in trajectory.turns),
    )
    return msgspec.json.encode(raw) + b"\n"


def _raw_turn(turn: TraceTurn) -> _Turn:
    return _Turn(
        turn.think_s, turn.prompt_tokens, turn.output_tokens, tuple(map(_raw_action, turn.actions))
    )


def _raw_action(action: TraceAction) -> _Action:
    needs = action.needs
    amounts = {resource: _raw_amounts(choices) for resource, choices in needs.amounts}
    speedup = _ABSENT if needs.speedup is None else _raw_json(_raw_speedup(needs.speedup))
    return _Action(
        kind=action.kind,
        needs=_raw_json(amounts),
        work_s=action.work_s,
        elastic=needs.elastic,
        speedup=speedup,
        service=needs.service,
        fail_at_s=action.fail_at_s,
        reward=action.reward,
        timeout_s=action.timeout_s,
        repeatable=action.repeatable,
        priority=action.priority,
        tokens=action.tokens,
    )


def _raw_json(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _raw_amounts(amounts: Amounts) -> object:
    low, high = amounts[0], amounts[-1]
    if low == high:
        return low
    if high - low == len(amounts) - 1:
        return {"min": low, "max": high}
    return {"choices": amounts}


def _raw_speedup(speedup: Speedup) -> object:
    if isinstance(speedup, Amdahl):
        return {"amdahl": speedup.serial}
    if isinstance(speedup, Power):
        return {"power": speedup.exponent}
    return {"table": {str(units): speed for units, speed in speedup.points}}
