"""Whether two kinds of accelerators pay for the tasks of a run, and what to buy and declare.

- Tasks are what a run recorded of them: turns, tokens read and written, hits of prefix caches.
- All figures are those of a fluid (`fluid`): an upper bound of what routing gains, in
  milliseconds. Purchases cost the same; a gain is against the better of the two kinds alone.
- Where the trainer is always busy, sampling faster gains nothing, and that is said first.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.gateway.counters import TaskTokens
from artangram.gateway.hardware import hardware
from artangram.sim.fluid import MeanTrajectory, alone_s, divided, divided_s, needs_on

TRAINER_BOUND = 0.95
"""Share of a step for which the trainer is busy: above it, sampling faster gains nothing."""
WORTH = 1.02
"""A gain below this is noise."""
PURCHASES = 20
"""Ways to divide the money between two kinds."""
KindNeeds = Mapping[str, Mapping[str, float]]
"""Device-seconds by kind and task."""
_WHOLE = 0.98
"""A larger part of a task is all of it."""


class TaskMix(Struct, frozen=True, kw_only=True):
    """The tasks of a run."""

    tasks: dict[str, MeanTrajectory]
    shares: dict[str, float]
    """Of all trajectories."""
    hit_rate: float | None
    """Of what was read before; `None` if no engine said what it found."""

    def with_share(self, readers: Sequence[str], share: float) -> "TaskMix":
        """The same with another share of these tasks together."""
        others = [task for task in self.shares if task not in readers]
        shares = dict(self.shares)
        for names, total in ((readers, share), (others, 1.0 - share)):
            before = sum(self.shares[name] for name in names)
            shares |= {name: total * self.shares[name] / before for name in names}
        return structs.replace(self, shares=shares)


def mix_of(recorded: Mapping[str, TaskTokens]) -> TaskMix:
    """From what a gateway counted. Raises `BadInput` without a finished conversation."""
    known = {name: one for name, one in recorded.items() if one.sessions and one.sampled}
    if not known:
        fix = "name a run of `artangram train` with at least one step"
        raise BadInput("run", "has no tokens by task in its metrics", fix)
    sessions = sum(one.sessions for one in known.values())
    return TaskMix(
        tasks={name: conversation(one) for name, one in known.items()},
        shares={name: one.sessions / sessions for name, one in known.items()},
        hit_rate=_hit_rate(known),
    )


def conversation(one: TaskTokens) -> MeanTrajectory:
    """Its mean: prompts grow by an answer and an observation from turn to turn."""
    turns = one.turns / one.sessions
    opening, reply = one.opening / one.sessions, one.sampled / one.turns
    later = one.turns - one.sessions
    grown = (one.prompt / one.turns - opening) * 2.0 / (turns - 1.0) if later else 0.0
    return MeanTrajectory(
        turns=turns,
        prompt_tokens=opening,
        seen_tokens=max(0.0, grown - reply),
        reply_tokens=reply,
    )


def _hit_rate(known: Mapping[str, TaskTokens]) -> float | None:
    """Found of what was there before; siblings that share a first prompt find a little more."""
    found = held = 0.0
    for one in known.values():
        if one.asked:
            mean, later = conversation(one), one.turns - one.sessions
            before = one.prompt - one.opening - later * mean.seen_tokens
            held += max(0.0, before) * one.asked / one.prompt
            found += one.found
    return min(1.0, found / held) if held else None


class Purchase(Struct, frozen=True, kw_only=True):
    """Devices, and what a fluid makes of them."""

    devices: dict[str, float]
    step_s: float
    """Device-limited seconds of one trajectory of the mix."""


class AffinityPlan(Struct, frozen=True, kw_only=True):
    """The answer for one hit rate and one mix."""

    hit_rate: float
    alone: dict[str, Purchase]
    """By kind: all of the money for it."""
    given: Purchase
    best: Purchase
    gain: float
    """Of the given devices over the better kind alone."""
    best_gain: float
    declare: dict[str, str]
    """By task: the kind it belongs on with the given devices, or `auto` where it is divided."""


class TwoKinds(Struct, frozen=True, kw_only=True):
    """Two kinds of devices, and what one of each costs."""

    counts: dict[str, int]
    prices: dict[str, float]

    def __post_init__(self) -> None:
        if len(self.counts) != 2 or min(self.counts.values()) < 1:
            fix = "name two kinds with their numbers, as in H800=64,H20=24"
            raise BadInput("devices", f"{len(self.counts)} kinds cannot be weighed", fix)
        for kind in self.counts:
            hardware(kind)
            if not self.prices[kind] > 0:
                raise BadInput("price", f"{kind} costs {self.prices[kind]}", "say more than 0")

    @property
    def cost(self) -> float:
        return sum(count * self.prices[kind] for kind, count in self.counts.items())

    @property
    def given(self) -> dict[str, float]:
        return {kind: float(count) for kind, count in self.counts.items()}

    def bought(self, share: float) -> dict[str, float]:
        """With that share of the money for the first kind."""
        parts = zip(self.counts, (share, 1.0 - share), strict=True)
        return {kind: part * self.cost / self.prices[kind] for kind, part in parts}


def affinity_plan(mix: TaskMix, devices: TwoKinds, *, model: str, hit_rate: float) -> AffinityPlan:
    """What the devices gain for this mix, and how the money were better spent."""
    needs = _weighed(mix, _needs(mix, devices, model=model, hit_rate=hit_rate))
    (first, second), given = devices.counts, devices.given
    alone = _alone(needs, devices)
    mixed = [devices.bought(part / PURCHASES) for part in range(1, PURCHASES)]
    bought = [_mixed(needs, one) for one in (given, *mixed)]
    best = min([*alone.values(), *bought], key=lambda one: one.step_s)
    least_s = min(one.step_s for one in alone.values())
    parts = divided(needs, given)
    return AffinityPlan(
        hit_rate=hit_rate,
        alone=alone,
        given=bought[0],
        best=best,
        gain=least_s / bought[0].step_s,
        best_gain=least_s / best.step_s,
        declare={
            task: first if part >= _WHOLE else second if part <= 1.0 - _WHOLE else "auto"
            for task, part in parts.items()
        },
    )


def _needs(mix: TaskMix, devices: TwoKinds, *, model: str, hit_rate: float) -> KindNeeds:
    return {
        kind: needs_on(kind, mix.tasks, model=model, hit_rate=hit_rate) for kind in devices.counts
    }


def _weighed(mix: TaskMix, needs: KindNeeds) -> KindNeeds:
    return {
        kind: {task: mix.shares[task] * seconds for task, seconds in on.items()}
        for kind, on in needs.items()
    }


def _alone(needs: KindNeeds, devices: TwoKinds) -> dict[str, Purchase]:
    counts = {kind: devices.cost / devices.prices[kind] for kind in devices.counts}
    return {
        kind: Purchase(devices={kind: count}, step_s=alone_s(needs[kind], count))
        for kind, count in counts.items()
    }


def _mixed(needs: KindNeeds, devices: dict[str, float]) -> Purchase:
    return Purchase(devices=devices, step_s=divided_s(needs, devices))


class GainMap(Struct, frozen=True, kw_only=True):
    """The gain of the given devices over hit rate and mix."""

    readers: tuple[str, ...]
    """Tasks that the first kind does cheaper, as far as its price goes."""
    hit_rates: tuple[float, ...]
    shares: tuple[float, ...]
    """Of trajectories that are the readers'."""
    gains: tuple[tuple[float, ...], ...]
    """A row for each share."""


def gain_map(
    mix: TaskMix, devices: TwoKinds, *, model: str, hit_rate: float, points: int = 21
) -> GainMap | None:
    """`None` where one kind does all tasks cheaper: then there is no mix to vary."""
    first, second = devices.counts
    on = _needs(mix, devices, model=model, hit_rate=hit_rate)
    worth = {task: on[first][task] / on[second][task] for task in mix.tasks}
    order = sorted(worth, key=worth.__getitem__)
    even = devices.prices[second] / devices.prices[first]
    readers = tuple(task for task in order if worth[task] < even) or tuple(order[:1])
    if len(readers) == len(order):
        readers = tuple(order[:-1])
    if not readers:
        return None
    steps = [n / (points - 1) for n in range(points)]
    shares = [min(0.98, max(0.02, share)) for share in steps]
    by_rate = [_needs(mix, devices, model=model, hit_rate=rate) for rate in steps]
    mixes = [mix.with_share(readers, share) for share in shares]
    return GainMap(
        readers=readers,
        hit_rates=tuple(steps),
        shares=tuple(shares),
        gains=tuple(
            tuple(_gain(_weighed(one, needs), devices) for needs in by_rate) for one in mixes
        ),
    )


def _gain(needs: KindNeeds, devices: TwoKinds) -> float:
    least_s = min(one.step_s for one in _alone(needs, devices).values())
    return least_s / divided_s(needs, devices.given)
