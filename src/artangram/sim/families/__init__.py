"""Seeded synthetic workloads, and the clusters they are meant for.

- `generate` gives a whole trace, `stream` the same one piece by piece; equal arguments give equal
  traces on every machine.
- Each family documents its parameters in one record; `presets` are named settings of them.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.observe.badfile import in_our_words, nearest
from artangram.observe.trace import Trace, TraceTrajectory
from artangram.sim.families import coding, deepsearch, lab, mixed, mopd
from artangram.sim.families.lab import LabTrace, lab_traces

__all__ = [
    "FAMILIES",
    "Family",
    "GeneratedTrace",
    "LabTrace",
    "cluster_for",
    "generate",
    "lab_traces",
    "stream",
]


class Family(Struct, frozen=True, kw_only=True):
    """One kind of workload: its parameters, its trajectories, its cluster."""

    presets: dict[str, Any]
    trajectories: Callable[..., Iterator[TraceTrajectory]]
    train_s: Callable[[Any], float]
    sizes: Any
    cluster: Callable[[Any], ClusterSpec]


def _in(module: ModuleType) -> Family:
    return Family(
        presets=module.PRESETS,
        trajectories=module.trajectories,
        train_s=module.train_s,
        sizes=module.SIZES,
        cluster=module.cluster,
    )


FAMILIES = {
    "coding": _in(coding),
    "deepsearch": _in(deepsearch),
    "lab": _in(lab),
    "mixed": _in(mixed),
    "mopd": _in(mopd),
}


class GeneratedTrace:
    """A trace that is made while it is read, as often as it is read."""

    def __init__(self, family: str, *, seed: int, params: Any) -> None:
        self._family = FAMILIES[family]
        self._seed = seed
        self.params = params
        self.name = f"{family}-{seed}"
        self.train_s = self._family.train_s(params)

    def __repr__(self) -> str:
        return f"<GeneratedTrace {self.name}: {self.params}>"

    @property
    def trajectories(self) -> Iterator[TraceTrajectory]:
        return self._family.trajectories(self.params, seed=self._seed)


def stream(family: str, *, seed: int, preset: str = "default", **params: object) -> GeneratedTrace:
    """A trace of `family`, made while it is read. Raises `BadInput`."""
    presets = _family(family).presets
    if preset not in presets:
        problem = f"{family} has no {preset!r}"
        raise BadInput("preset", problem, nearest(preset, list(presets)))
    return GeneratedTrace(family, seed=seed, params=_changed(presets[preset], params))


def generate(family: str, *, seed: int, preset: str = "default", **params: object) -> Trace:
    """A trace of `family`: the preset with these parameters changed. Raises `BadInput`."""
    made = stream(family, seed=seed, preset=preset, **params)
    return Trace(name=made.name, train_s=made.train_s, trajectories=tuple(made.trajectories))


def cluster_for(family: str, **sizes: object) -> ClusterSpec:
    """A cluster that has what the actions of `family` need. Raises `BadInput`."""
    kind = _family(family)
    return kind.cluster(_changed(kind.sizes, sizes))


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise BadInput("family", f"unknown family {name!r}", nearest(name, list(FAMILIES)))
    return FAMILIES[name]


def _changed(record: Any, changes: dict[str, object]) -> Any:
    """`record` with other values, which may still be the text of a command line."""
    values = {**msgspec.structs.asdict(record), **changes}
    try:
        return msgspec.convert(values, type(record), strict=False)
    except msgspec.ValidationError as error:
        said = in_our_words(error, lambda _: list(record.__struct_fields__))
        problem = said.problem.replace("`str`", repr(changes.get(said.field)))
        raise BadInput(said.field, problem, said.fix) from None
