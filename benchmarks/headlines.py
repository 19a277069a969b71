"""The results that the README shows: each beside its strongest baseline and its ceiling.

A baseline is strongest if it comes closest to us on the same work. A ceiling is what a system
that reaches the lower bound, or costs nothing, would gain over that baseline.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from row import Headline

KERNEL = "time sharing by the kernel"
CODING_CORES = 128
STATIC_GPUS = 40
"""Ten services with four GPUs each."""


def lab(figures: Any) -> Iterator[Headline]:
    penalised = [r for r in figures if r["squeeze_penalty"] == 0.1]
    by = {r["policy"]: r for r in penalised if r["estimates"] == "learned"}
    ours, kernel = by["elastic"]["ratio"], by["overcommit"]["ratio"]
    told = next(
        r["ratio"] for r in penalised if (r["policy"], r["estimates"]) == ("elastic", "exact")
    )
    yield Headline(
        f"Simulated: actions of {len(by['elastic']['ratios'])} synthetic workloads, durations "
        "learned",
        f"**{by['tangram']['ratio'] / ours:.2f}x** faster than the algorithm of ARL-Tangram",
        f"{kernel / ours:.2f}x faster than {KERNEL}",
        f"{kernel:.2f}x; {kernel / told:.2f}x with exact durations",
    )


def coding(figures: Any) -> Iterator[Headline]:
    live = [r for r in figures if r["estimates"] == "learned"]
    by = {r["policy"]: r for r in live if r["cores"] == CODING_CORES}
    ours, kernel = by["elastic"]["act_mean_s"], by["overcommit"]["act_mean_s"]
    told = next(
        r["act_mean_s"]
        for r in figures
        if (r["cores"], r["policy"], r["estimates"]) == (CODING_CORES, "elastic", "exact")
    )
    yield Headline(
        f"Simulated: actions of coding agents on {CODING_CORES} cores, durations learned",
        f"**{by['pods:1']['act_mean_s'] / ours:.1f}x** faster than a pod of one core for each "
        "agent",
        f"{kernel / ours:.2f}x faster than {KERNEL}",
        f"{kernel / by['elastic']['act_bound_s']:.2f}x; {kernel / told:.2f}x with exact durations",
    )
    most = max(r["cores"] for r in live)
    whole = [r for r in live if r["cores"] == most and r["policy"] in ("pods:1", "pods:2")]
    pods = min(r["step_s"] for r in whole)
    enough = {
        policy: min(r["cores"] for r in live if r["policy"] == policy and r["step_s"] <= pods)
        for policy in ("elastic", "overcommit")
    }
    yield Headline(
        f"Simulated: cores for a training step of {pods:.0f} s with coding agents",
        f"**{most / enough['elastic']:.1f}x** fewer than pods of whole cores "
        f"({enough['elastic']} instead of {most})",
        f"{enough['overcommit'] / enough['elastic']:.1f}x fewer than {KERNEL}",
    )


def mopd(figures: Any) -> Iterator[Headline]:
    found = [r for r in figures if r["policy"] == "elastic" and r["gpus"]]
    duties = [r["duty"] for r in found]
    gains = [STATIC_GPUS / r["gpus"] for r in found]
    most = [STATIC_GPUS / r["bound_gpus"] for r in found]
    yield Headline(
        f"Simulated: GPUs for ten teacher models, each busy {min(duties):.1%} to "
        f"{max(duties):.1%} of the time",
        f"**{min(gains):.1f}x to {max(gains):.1f}x** fewer than four GPUs for each, at the same "
        "speed",
        "no other was measured",
        f"{min(most):.1f}x to {max(most):.1f}x",
    )


def live(figures: Any) -> Iterator[Headline]:
    thinking, pods, kernel = [], [], []
    for duty in figures["duties"]:
        by = {row["policy"]: row["act_mean_s"] for row in duty["rows"]}
        thinking.append(f"{duty['think_s']:g} s")
        pods.append(f"{by['pods:1'] / by['elastic']:.2f}x")
        kernel.append(f"{by['overcommit'] / by['elastic']:.2f}x")
    yield Headline(
        f"Actions of {figures['trajectories']} live coding agents on {figures['cores']} cores that "
        f"think for {' or '.join(thinking)} a turn",
        f"**{' or '.join(pods)}** faster than a pod of one core for each agent",
        f"{' or '.join(kernel)} faster than {KERNEL}",
    )


def sandbox(figures: Any) -> Iterator[Headline]:
    by = {goal["what"]: goal for goal in figures["goals"]}
    podman, docker = by["podman exec / ours"], by["docker SDK exec / ours"]
    yield Headline(
        "A command in a sandbox that is ready",
        f"**{podman['value']:.0f}x** faster than `podman exec`",
        f"{docker['value']:.0f}x faster than the Docker SDK, "
        f"{by['ours / bare subprocess.run']['value']:.2f}x slower than `subprocess.run`",
        f"{docker['limit']:.0f}x",
    )


def gateway(figures: Any) -> Iterator[Headline]:
    (ratio,) = (r for r in figures["ratios"] if r["concurrency"] == 64)
    rate = {
        cell["name"]: median(cell["per_s"])
        for cell in figures["cells"]
        if cell["concurrency"] == 64
    }
    yield Headline(
        "Requests a second from 64 clients through the OpenAI-compatible gateway",
        f"**{ratio['throughput']:.1f}x** more than LiteLLM's proxy",
        "no other was measured",
        f"{rate['engine'] / rate['LiteLLM']:.0f}x (no gateway)",
    )


def rollout(figures: Any) -> Iterator[Headline]:
    gains = {gain["case"]: gain["gain"] for gain in figures["gains"]}
    strict, loose = "bound 1, against", "bound 2, against"
    yield Headline(
        "Simulated: tokens trained on per second, weights at most 1 or 2 versions stale",
        f"**{gains[f'{strict} sync']:.2f}x or {gains[f'{loose} sync']:.2f}x** more than "
        "synchronous training",
        f"{gains[f'{strict} areal 1']:.2f}x or {gains[f'{loose} areal 2']:.2f}x more than AReaL",
    )


HEADLINES: dict[str, Callable[[Any], Iterator[Headline]]] = {
    "lab": lab,
    "coding": coding,
    "mopd": mopd,
    "live": live,
    "sandbox": sandbox,
    "gateway": gateway,
    "rollout_asynchrony": rollout,
}
