"""On-policy distillation: a student samples, two teachers say how likely they find its tokens."""

import torch

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import (
    Group,
    Segment,
    Trajectory,
    TrajectoryStatus,
    VersionSpan,
)
from artangram.models.causal import score
from artangram.models.config import ModelConfig
from artangram.models.llama import Llama
from artangram.train.samples import attempt_samples, rows_of
from artangram.train.settings import TrainSettings
from artangram.train.trainer import Trainer

CONFIG = ModelConfig(vocab_size=16, max_context=32)
PROMPT, LENGTH, ATTEMPTS, STEPS = (3, 4, 5), 6, 32, 20


def attempt(model: Llama, name: str, version: int) -> Trajectory:
    """What the student says to the prompt, recorded as an engine would."""
    slots, tokens, logprobs = model.slots(1, 32), [], []
    logits = slots.extend([0], [PROMPT])
    for _ in range(LENGTH):
        every = torch.log_softmax(logits[0], dim=-1)
        token = int(torch.multinomial(every.exp(), 1))
        tokens.append(token)
        logprobs.append(float(every[token]))
        logits = slots.extend([0], [[token]])
    spans = (VersionSpan(version, 0, LENGTH),)
    said = Segment(token_ids=tuple(tokens), logprobs=tuple(logprobs), spans=spans)
    return Trajectory(
        id=TrajectoryId(name),
        job=JobId("distil"),
        task="copy",
        problem="p",
        group="g",
        segments=(Segment(token_ids=PROMPT), said),
        status=TrajectoryStatus.OK,
        reward=0.0,
    )


@torch.no_grad()
def said_by(teacher: Llama, one: Trajectory) -> tuple[float, ...]:
    rows = rows_of(attempt_samples(one, 0.0), version=0)
    return tuple(score(teacher, rows.packed, at=rows.at).logprobs.tolist())


@torch.no_grad()
def a_teacher(seed: int) -> Llama:
    """A model with opinions: an untrained one finds all tokens about equally likely."""
    teacher = Llama(CONFIG, seed=seed)
    teacher.embedding.weight.mul_(5)
    return teacher


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    student, teachers = Llama(CONFIG, seed=0), [a_teacher(seed) for seed in (1, 2)]
    trainer = Trainer(student, TrainSettings(loss="distillation", lr=2e-3, entropy=0.0))
    for step in range(STEPS):
        attempts = tuple(attempt(student, f"{step}-{i}", step) for i in range(ATTEMPTS))
        said = {str(t.id): tuple(said_by(one, t) for one in teachers) for t in attempts}
        own = sum(sum(t.segments[1].logprobs) for t in attempts)
        theirs = sum(sum(row) for rows in said.values() for row in rows) / len(teachers)
        group = Group(id="g", job=JobId("distil"), task="copy", problem="p", trajectories=attempts)
        trainer.step([group], teachers=said)
        gap = (own - theirs) / (ATTEMPTS * LENGTH)
        print(f"step {step + 1}: {gap:+.4f} nats per token from the teachers")


if __name__ == "__main__":
    main()
