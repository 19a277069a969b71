"""What a mixed cluster would gain if nothing ever waited: a fluid of its tasks.

- A trajectory needs replica-seconds: reading what the cache misses, and its part of iterations that
  write for as many of its kind as fit into memory. Iterations that read write, too, for nothing.
- Fluid: any part of any task may be on either kind of device, and all are always busy. Then the
  best is to give each kind the tasks for which it has the greater advantage, and to divide the one
  in the middle so that both finish together.
- An estimate of throughput alone: what one task's reading spares another's writing is not in it.
  Where steps wait for the latency of their longest answers, devices are idle, and hardware that
  answers sooner gains more than hardware that does more.
"""

from collections.abc import Mapping

from msgspec import Struct

from artangram.gateway.hardware import Roofline, hardware, model_shape, new_tokens

MOST_RUNNING = 256
"""Requests that an engine writes for in one iteration."""

Needs = Mapping[str, float]
"""Replica-seconds of one trajectory, by task."""


class MeanTrajectory(Struct, frozen=True, kw_only=True):
    """A mean trajectory of a task."""

    turns: float
    prompt_tokens: float
    seen_tokens: float
    """What the environment says in one turn."""
    reply_tokens: float
    """What the model says in one turn."""


def need_s(task: MeanTrajectory, replica: Roofline, *, hit_rate: float) -> float:
    """Replica-seconds of a mean trajectory among its own kind."""
    reply, turns = task.reply_tokens, task.turns
    longest = task.prompt_tokens + turns * (reply + task.seen_tokens)
    company = min(MOST_RUNNING, int(replica.capacity / (0.5 * (task.prompt_tokens + longest))))
    company = max(1, company)
    read_s = replica.prefill_s(replica.prefill_chunk) / replica.prefill_chunk
    total_s, prompt, cached = 0.0, task.prompt_tokens, 0.0
    while turns > 0.0:
        new = new_tokens(int(prompt), cached=int(cached), hit_rate=hit_rate)
        context = company * (prompt + reply / 2.0)
        left = max(0.0, reply - company * new / replica.prefill_chunk)
        write_s = left * replica.iteration_s(company, context=context) / company
        total_s += min(1.0, turns) * (new * read_s + write_s)
        cached, turns = prompt + reply, turns - 1.0
        prompt = cached + task.seen_tokens
    return total_s


def needs_on(
    kind: str, tasks: Mapping[str, MeanTrajectory], *, model: str, hit_rate: float
) -> dict[str, float]:
    """Device-seconds of one trajectory of each task, on devices of one kind."""
    shape = model_shape(model)
    replica = Roofline(hardware=hardware(kind), model=shape, tp=shape.tp)
    found = {name: need_s(task, replica, hit_rate=hit_rate) for name, task in tasks.items()}
    return {name: shape.tp * seconds for name, seconds in found.items()}


def alone_s(needs: Needs, devices: float) -> float:
    """For one trajectory of every task, on devices of one kind."""
    return sum(needs.values()) / devices


def mapped_s(
    needs: Mapping[str, Needs], devices: Mapping[str, float], homes: Mapping[str, str]
) -> float:
    """The same when every task keeps to one kind of device: the kind with more to do decides."""
    loads = dict.fromkeys(devices, 0.0)
    for task, kind in homes.items():
        loads[kind] += needs[kind][task]
    return max(load / devices[kind] for kind, load in loads.items())


def divided_s(needs: Mapping[str, Needs], devices: Mapping[str, float]) -> float:
    """The same, divided between two kinds of devices as well as can be."""
    parts, (first, second) = divided(needs, devices), devices
    load = sum(part * needs[first][task] for task, part in parts.items())
    rest = sum((1.0 - part) * needs[second][task] for task, part in parts.items())
    return max(load / devices[first], rest / devices[second])


def divided(needs: Mapping[str, Needs], devices: Mapping[str, float]) -> dict[str, float]:
    """The part of each task on the first of two kinds, so that both finish together."""
    (first, on_first), (second, on_second) = ((kind, needs[kind]) for kind in devices)
    by_advantage = sorted(on_first, key=lambda task: on_first[task] / on_second[task])
    parts = dict.fromkeys(by_advantage, 0.0)
    load, rest = 0.0, sum(on_second.values())
    for task in by_advantage:
        gap = rest / devices[second] - load / devices[first]
        part = gap / (on_first[task] / devices[first] + on_second[task] / devices[second])
        parts[task] = part = min(1.0, part)
        load, rest = load + part * on_first[task], rest - part * on_second[task]
        if part < 1.0:
            break
    return parts
