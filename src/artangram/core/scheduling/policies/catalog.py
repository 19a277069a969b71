"""Scheduling policies by name: `elastic`, `tangram`, `fixed:4`, `pods:0.5/4` and so on.

A policy is a composition: one lane for each kind of pool. A baseline that is about one kind of
pool takes the plain lanes of its time for the others.
"""

from collections.abc import Callable
from functools import partial

from artangram.core.errors import BadInput
from artangram.core.scheduling.baselines.fcfs import FcfsLane
from artangram.core.scheduling.baselines.gpufcfs import GpuFcfsLane
from artangram.core.scheduling.baselines.gputangram import GpuTangramLane
from artangram.core.scheduling.baselines.loadpercall import LoadPerCallLane
from artangram.core.scheduling.baselines.shared import SharedLane
from artangram.core.scheduling.baselines.static import StaticLane
from artangram.core.scheduling.baselines.tangram import TangramLane
from artangram.core.scheduling.baselines.unmanaged import UnmanagedLane
from artangram.core.scheduling.policies.base import Lane, LaneContext
from artangram.core.scheduling.policies.elastic import ElasticLane
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.policies.paced import PacedLane
from artangram.core.scheduling.policies.policy import QuotaLane, SchedulingPolicy
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.residency import ResidencyLane
from artangram.core.scheduling.policies.slots import SlotLane
from artangram.core.scheduling.policies.width import TAIL
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.core.scheduling.pools.quota import QuotaPool


def policy(name: str) -> SchedulingPolicy:
    """The policy called `name`, with its argument after a colon."""
    base, colon, argument = name.partition(":")
    build = _POLICIES.get(base)
    if build is None:
        known = ", ".join(sorted(_POLICIES))
        raise BadInput("policy", f"unknown policy {name!r}", f"use one of: {known}")
    default = _WITH_ARGUMENT.get(base)
    if colon and default is None:
        raise BadInput("policy", f"{base} takes no argument", f"write {base} instead of {name}")
    return build(name, argument if colon else default or "")


def _elastic(name: str, argument: str) -> SchedulingPolicy:
    try:
        tail = float(argument)
    except ValueError:
        tail = 0.0
    if not 0.1 <= tail <= 100.0:
        raise BadInput("policy", f"{name!r} has no valid weight of the tail", "as in elastic:4")
    return _composed(name, cpu=partial(ElasticLane, tail=tail))


def _tangram(name: str, argument: str) -> SchedulingPolicy:
    if argument not in ("all", "elastic"):
        problem = f"{name!r} does not say which candidates may be held back"
        raise BadInput("policy", problem, "write tangram, or tangram:elastic")
    lane = partial(TangramLane, holds_rigid=argument == "all")
    return _composed(name, cpu=_alike(lane), gpu=_gpu_alike(GpuTangramLane))


def _fcfs(name: str, argument: str) -> SchedulingPolicy:
    return _composed(name, cpu=_alike(FcfsLane), gpu=_gpu_alike(GpuFcfsLane))


def _fixed(name: str, argument: str) -> SchedulingPolicy:
    size = _units(name, argument)
    cpu, gpu = partial(FcfsLane, size=size), partial(GpuFcfsLane, degree=size)
    return _composed(name, cpu=_alike(cpu), gpu=_gpu_alike(gpu))


def _pods(name: str, argument: str) -> SchedulingPolicy:
    request, slash, limit = argument.partition("/")
    request_milli = _cores(name, request)
    limit_milli = _cores(name, limit) if slash else request_milli
    if limit_milli < request_milli:
        raise BadInput("policy", f"{name!r} limits a pod below its request", "as in pods:0.5/4")
    lane = partial(SharedLane, weight_milli=request_milli, limit_milli=limit_milli)
    return _composed(
        name,
        cpu=_alike(lane),
        gpu=_gpu_alike(StaticLane),
        quota=_each_for_itself,
        request_milli=request_milli,
        has_control_plane=True,
    )


def _overcommit(name: str, argument: str) -> SchedulingPolicy:
    lane = partial(SharedLane, weight_milli=1000, limit_milli=1 << 40)
    return _composed(name, cpu=_alike(lane), gpu=_gpu_alike(StaticLane), quota=_each_for_itself)


def _static(name: str, argument: str) -> SchedulingPolicy:
    gpu = partial(StaticLane, degree=_units(name, argument))
    return _composed(name, cpu=_alike(FcfsLane), gpu=_gpu_alike(gpu))


def _load_per_call(name: str, argument: str) -> SchedulingPolicy:
    return _composed(name, cpu=_alike(FcfsLane), gpu=_gpu_alike(LoadPerCallLane))


def _unmanaged(name: str, argument: str) -> SchedulingPolicy:
    return _composed(name, cpu=_alike(FcfsLane), gpu=_gpu_alike(StaticLane), quota=_each_for_itself)


_POLICIES: dict[str, Callable[[str, str], SchedulingPolicy]] = {
    "elastic": _elastic,
    "tangram": _tangram,
    "fcfs": _fcfs,
    "fixed": _fixed,
    "pods": _pods,
    "overcommit": _overcommit,
    "static": _static,
    "load-per-call": _load_per_call,
    "unmanaged": _unmanaged,
}

_WITH_ARGUMENT = {
    "elastic": f"{TAIL:g}",
    "fixed": "4",
    "pods": "1",
    "static": "4",
    "tangram": "all",
}
"""What is meant where the argument is left out."""

_CpuLane = Callable[[CpuNode, LaneContext, FairUsage], Lane]
_GpuLane = Callable[[GpuPool, LaneContext, FairUsage], GpuLane]


def _composed(
    name: str,
    *,
    cpu: _CpuLane,
    gpu: _GpuLane = ResidencyLane,
    quota: Callable[[QuotaPool, LaneContext, FairUsage], QuotaLane] = PacedLane,
    request_milli: int = 0,
    has_control_plane: bool = False,
) -> SchedulingPolicy:
    return SchedulingPolicy(
        name=name,
        cpu=cpu,
        gpu=gpu,
        quota=quota,
        functions=SlotLane,
        request_milli=request_milli,
        has_control_plane=has_control_plane,
    )


def _alike(lane: Callable[[CpuNode, LaneContext], Lane]) -> _CpuLane:
    """A lane that does not tell jobs apart."""
    return lambda node, context, served: lane(node, context)


def _gpu_alike(lane: Callable[[GpuPool, LaneContext], GpuLane]) -> _GpuLane:
    """The same for GPUs."""
    return lambda pool, context, served: lane(pool, context)


def _each_for_itself(pool: QuotaPool, context: LaneContext, served: FairUsage) -> QuotaLane:
    return UnmanagedLane(pool, context)


def _units(name: str, text: str) -> int:
    units, rest = divmod(_cores(name, text), 1000)
    if rest:
        problem = f"{name!r} is not a whole number of units"
        raise BadInput("policy", problem, "as in fixed:4, static:2")
    return units


def _cores(name: str, text: str) -> int:
    """A number of cores in thousandths."""
    try:
        cores = float(text)
    except ValueError:
        cores = 0.0
    if not 0.001 <= cores <= 100_000:
        raise BadInput("policy", f"{name!r} has no valid number of cores", "as in fixed:4, pods:2")
    return round(1000 * cores)
