"""The workload of `artangram bench services`: judges with weights of their own, and bursts."""

import os
import random
import shutil
from heapq import heappop, heappush
from pathlib import Path
from statistics import mean

import msgspec
from msgspec import Struct

from artangram.core.ids import ServiceId
from artangram.services.service import Service
from artangram.services.shipped.similarity import FILES, packaged, similarity

PAIRS = 8
"""Texts and references in one call."""
CALLS = (8, 24)
"""In a burst, from and to."""
LOAD = 0.4
"""Of the cores, by calls; the rest is room for bursts to overlap."""
_WORDS = "the a judge reads long answers and short proofs about rain trains code maps in old towns"


class Arrival(Struct, frozen=True):
    """A call of the workload."""

    at_s: float
    service: ServiceId
    body: bytes


def a_judge(folder: Path, number: int) -> Service:
    """The packaged model with weights of its own."""
    import torch
    from safetensors.torch import load_file, save_file

    home, source = folder / f"judge-{number}", packaged()
    home.mkdir()
    generator = torch.Generator().manual_seed(number)
    tensors = load_file(source / FILES[0])
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            tensors[name] = tensor + 1e-4 * noise * tensor.std(correction=0)
    save_file(tensors, home / FILES[0])
    for file in FILES[1:]:
        shutil.copyfile(source / file, home / file)
    return msgspec.structs.replace(similarity(f"judge-{number}", directory=home), degrees=(1,))


def a_plan(
    rng: random.Random, judges: list[Service], bursts: int, *, call_s: float
) -> list[Arrival]:
    """Bursts one after the other, overlapping as chance has it, that make up `LOAD`."""
    plan, at_s, cores = [], 0.0, len(os.sched_getaffinity(0))
    for _ in range(bursts):
        judge, calls = rng.choice(judges).id, rng.randint(*CALLS)
        work_s = calls * call_s
        when = at_s
        for _ in range(calls):
            plan.append(Arrival(when, judge, a_body(rng)))
            # A burst comes about as fast as one core can answer it.
            when += rng.expovariate(1 / call_s)
        at_s += rng.expovariate(LOAD * cores / work_s)
    return sorted(plan, key=lambda arrival: arrival.at_s)


def one_queue_s(plans: list[list[Arrival]], *, call_s: float) -> float:
    """The mean ACT of one queue before all cores if every service were always resident.

    First come, first served, a call at a time; only batching can do better.
    """
    acts = []
    for plan in plans:
        free_at = [0.0] * len(os.sched_getaffinity(0))
        for arrival in plan:
            ends_at = max(heappop(free_at), arrival.at_s) + call_s
            heappush(free_at, ends_at)
            acts.append(ends_at - arrival.at_s)
    return mean(acts)


def a_body(rng: random.Random) -> bytes:
    words = _WORDS.split()
    pairs = [
        {name: " ".join(rng.choices(words, k=12)) for name in ("text", "reference")}
        for _ in range(PAIRS)
    ]
    return msgspec.json.encode(pairs)
