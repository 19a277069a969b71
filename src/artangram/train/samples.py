"""From trajectories to rows of tensors: what is scored, and what is known of each sampled token.

A sample is one conversation of an attempt, with the attempt's advantage; most attempts have one.
However many an attempt has, it weighs as one: `lengths` are those of whole attempts. Samples are
cut into micro-batches by their number of tokens, and the micro-batches' losses add up: memory
decides how many there are, never the result.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from artangram.core.rollout.trajectory import Group, Segment, Trajectory, TrajectoryStatus
from artangram.models.packed import Packed, pack
from artangram.train.advantages import batch_relative, centred, group_relative, has_signal
from artangram.train.losses import BatchShare
from artangram.train.lossrules import LossRule, Scale
from artangram.train.settings import TrainSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One conversation of an attempt, ready to train on."""

    trajectory: str
    task: str
    token_ids: tuple[int, ...]
    sampled: tuple[int, ...]
    """Where the sampled tokens stand in `token_ids`."""
    behaviour: tuple[float, ...]
    versions: tuple[int, ...]
    temperatures: tuple[float, ...]
    advantage: float
    length: int
    """Sampled tokens of the whole attempt."""
    before: int = 0
    """Of these, those of conversations that come before this one."""
    turn_advantages: tuple[float, ...] = ()
    """What comes to `advantage` for each sampled token, where turns have rewards."""


def samples_of(groups: Sequence[Group], settings: TrainSettings) -> list[Sample]:
    """The attempts that teach something, with their advantages."""
    rules = {group.task: settings.rule(group.task) for group in groups}
    rewards = [[_reward(t, rules[group.task]) for t in group.trajectories] for group in groups]
    if settings.loss == "distillation":
        scored: list[Sequence[float]] = [[0.0] * len(group) for group in rewards]
        useful = [True] * len(rewards)
    else:
        scored = _advantages(rewards, [rules[group.task].scale for group in groups])
        useful = [
            has_signal(given) or (group.has_signal and bool(rules[group.task].turn_weight))
            for given, group in zip(rewards, groups, strict=True)
        ]
    turns = _turn_advantages(groups, rules)
    return [
        sample
        for group, advantages, is_useful in zip(groups, scored, useful, strict=True)
        for trajectory, advantage in zip(group.trajectories, advantages, strict=True)
        if is_useful and not _is_masked(trajectory, rules[group.task])
        for sample in attempt_samples(trajectory, advantage, turns.get(trajectory.id, {}))
    ]


def _turn_advantages(
    groups: Sequence[Group], rules: Mapping[str, LossRule]
) -> dict[str, dict[int, float]]:
    """By attempt and turn: how much better than the siblings' turn of the same number."""
    rows = [
        (group, number, row) for group in groups for number, row in enumerate(group.turn_rewards)
    ]
    compared = [one for one in rows if one[2]]
    scored = _advantages(
        [list(row.values()) for _, _, row in compared],
        [rules[group.task].scale for group, _, _ in compared],
    )
    found: dict[str, dict[int, float]] = {}
    for (group, number, row), advantages in zip(compared, scored, strict=True):
        weight = rules[group.task].turn_weight
        for place, advantage in zip(row, advantages, strict=True):
            name = group.trajectories[place].id
            found.setdefault(name, {})[number] = weight * advantage
    return found


def _advantages(
    rewards: Sequence[Sequence[float]], scales: Sequence[Scale]
) -> list[Sequence[float]]:
    """Of each group, in its units; the batch of `Scale.BATCH` are the groups that ask for it."""
    together = [group for group, scale in zip(rewards, scales, strict=True) if scale is Scale.BATCH]
    by_batch = iter(batch_relative(together) if together else [])
    scalers = {Scale.GROUP: group_relative, Scale.NONE: centred}
    return [
        next(by_batch) if scale is Scale.BATCH else scalers[scale](group)
        for group, scale in zip(rewards, scales, strict=True)
    ]


def _is_masked(trajectory: Trajectory, rule: LossRule) -> bool:
    return rule.overlong.mask and trajectory.status is TrajectoryStatus.TRUNCATED


def _reward(trajectory: Trajectory, rule: LossRule) -> float:
    reward = trajectory.reward
    assert reward is not None, "only trajectories that may train reach the trainer"
    return reward - rule.overlong.penalty(trajectory.num_sampled)


def attempt_samples(
    trajectory: Trajectory, advantage: float, turns: Mapping[int, float] | None = None
) -> list[Sample]:
    """The conversations of an attempt in which something was sampled.

    `turns` has the advantages of single replies, which are counted in the order of time.
    """
    replies = [one for line in trajectory.conversations for one in line if one.is_sampled]
    order = sorted(range(len(replies)), key=lambda place: replies[place].turn)
    gains = {id(replies[place]): (turns or {}).get(n, 0.0) for n, place in enumerate(order)}
    found: list[Sample] = []
    length, before = trajectory.num_sampled, 0
    for line in trajectory.conversations:
        sample = _sample(trajectory, line, advantage, length=length, before=before)
        if sample.sampled:
            if turns:
                gained = [g for one in line if one.is_sampled for g in _each(one, gains)]
                sample = replace(sample, turn_advantages=tuple(gained))
            found.append(sample)
            before += len(sample.sampled)
    return found


def _each(segment: Segment, gains: Mapping[int, float]) -> list[float]:
    return [gains[id(segment)]] * len(segment.token_ids)


def _sample(
    trajectory: Trajectory, line: Sequence[Segment], advantage: float, *, length: int, before: int
) -> Sample:
    """The tokens of a conversation as they were recorded, none of them made again."""
    tokens: list[int] = []
    sampled: list[int] = []
    behaviour: list[float] = []
    versions: list[int] = []
    temperatures: list[float] = []
    for segment in line:
        if segment.is_sampled:
            sampled += range(len(tokens), len(tokens) + len(segment.token_ids))
            behaviour += segment.logprobs
            temperatures += [segment.temperature] * len(segment.token_ids)
            for span in segment.spans:
                versions += [span.version] * (span.end - span.start)
        tokens += segment.token_ids
    assert len(sampled) == len(behaviour) == len(versions), "spans cover every sampled token"
    return Sample(
        trajectory=str(trajectory.id),
        task=trajectory.task,
        token_ids=tuple(tokens),
        sampled=tuple(sampled),
        behaviour=tuple(behaviour),
        versions=tuple(versions),
        temperatures=tuple(temperatures),
        advantage=advantage,
        length=length,
        before=before,
    )


def num_attempts(samples: Sequence[Sample]) -> int:
    """How many attempts these samples are of."""
    return len({sample.trajectory for sample in samples})


def share_of(samples: Sequence[Sample], *, budget: int = 0) -> BatchShare:
    """What each micro-batch of these samples is a part of."""
    return BatchShare(
        tokens=sum(len(sample.sampled) for sample in samples),
        sequences=num_attempts(samples),
        budget=budget or max(len(sample.token_ids) for sample in samples),
    )


def micro_batches(
    samples: Sequence[Sample], *, max_tokens: int, apart: Collection[str] = ()
) -> list[list[Sample]]:
    """Samples of like length together, at most `max_tokens` in a rectangle of theirs.

    Tasks that are named in `apart`, whose losses differ from those of others, have their own.
    """
    batches: list[list[Sample]] = []

    def loss_of(sample: Sample) -> str:
        return sample.task if sample.task in apart else ""

    for sample in sorted(samples, key=lambda s: (loss_of(s), len(s.token_ids))):
        # The longest comes last, so it decides how wide the rectangle gets.
        last = batches[-1] if batches else []
        fits = (len(last) + 1) * len(sample.token_ids) <= max_tokens
        if last and fits and loss_of(last[0]) == loss_of(sample):
            last.append(sample)
        else:
            batches.append([sample])
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A micro-batch as tensors: the packed tokens, and a row of facts per sampled token."""

    packed: Packed
    at: Tensor
    """Where the sampled tokens stand in the packed row."""
    behaviour: Tensor
    advantages: Tensor
    sequence: Tensor
    lengths: Tensor
    stale: Tensor
    temperatures: Tensor | None
    """`None` if all were sampled at 1."""

    @property
    def heat(self) -> float | Tensor:
        """The temperature to score at."""
        return 1.0 if self.temperatures is None else self.temperatures


def rows_of(samples: Sequence[Sample], *, version: int) -> Rows:
    """`version` is the one being trained, from which staleness is counted."""
    packed = pack([sample.token_ids for sample in samples])
    counts = torch.tensor([len(sample.sampled) for sample in samples])
    sequence = torch.arange(len(samples)).repeat_interleave(counts)
    places = torch.tensor([place for sample in samples for place in sample.sampled])
    versions = torch.tensor([v for sample in samples for v in sample.versions])
    temperatures = [t for sample in samples for t in sample.temperatures]
    return Rows(
        packed=packed,
        at=packed.starts[sequence] + places,
        behaviour=torch.tensor([p for sample in samples for p in sample.behaviour]),
        advantages=_token_advantages(samples, sequence),
        sequence=sequence,
        lengths=torch.tensor([sample.length for sample in samples])[sequence],
        stale=version - versions,
        temperatures=None if set(temperatures) == {1.0} else torch.tensor(temperatures),
    )


def _token_advantages(samples: Sequence[Sample], sequence: Tensor) -> Tensor:
    outcome = torch.tensor([sample.advantage for sample in samples])[sequence]
    if not any(sample.turn_advantages for sample in samples):
        return outcome
    turns = [
        gain for sample in samples for gain in sample.turn_advantages or [0.0] * len(sample.sampled)
    ]
    return outcome + torch.tensor(turns)
