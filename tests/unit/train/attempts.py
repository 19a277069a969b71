"""Trajectories sampled by a real model, for tests of training."""

import torch

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import (
    Group,
    Segment,
    Trajectory,
    TrajectoryStatus,
    VersionSpan,
)
from artangram.models.config import ModelConfig
from artangram.models.llama import Llama

VOCABULARY = 16
PROMPT = (3, 4, 5)


def a_model(seed=0):
    return Llama(ModelConfig(vocab_size=VOCABULARY, max_context=32), seed=seed)


def sampled(model, prompt, *, length, generator):
    """Tokens and their logprobs, by the engine's path through the model."""
    slots = model.slots(1, 32)
    logits, tokens, logprobs = slots.extend([0], [prompt]), [], []
    for _ in range(length):
        every = torch.log_softmax(logits[0], dim=-1)
        token = int(torch.multinomial(every.exp(), 1, generator=generator))
        tokens.append(token)
        logprobs.append(float(every[token]))
        logits = slots.extend([0], [[token]])
    return tuple(tokens), tuple(logprobs)


def an_attempt(model, name, *, reward, version=0, seed=0, length=4, task="t"):
    """Two sampled turns with something given between them; `reward` is a function of the tokens."""
    generator = torch.Generator().manual_seed(seed)
    first, first_logprobs = sampled(model, PROMPT, length=length, generator=generator)
    given = (7, 8)
    second, second_logprobs = sampled(
        model, (*PROMPT, *first, *given), length=2, generator=generator
    )
    segments = (
        Segment(token_ids=PROMPT),
        a_sampled_segment(first, first_logprobs, version),
        Segment(token_ids=given),
        a_sampled_segment(second, second_logprobs, version),
    )
    return Trajectory(
        id=TrajectoryId(name),
        job=JobId("j"),
        task=task,
        problem="p",
        group="g",
        segments=segments,
        status=TrajectoryStatus.OK,
        reward=reward((*first, *second)),
    )


def a_sampled_segment(tokens, logprobs, version):
    span = VersionSpan(version, 0, len(tokens))
    return Segment(token_ids=tokens, logprobs=logprobs, spans=(span,))


def a_group(model, name="g", *, reward, size=8, version=0, seed=0):
    attempts = tuple(
        an_attempt(
            model, f"{name}-{i}", reward=reward, version=version, seed=seed + i, length=3 + i % 4
        )
        for i in range(size)
    )
    return Group(id=name, job=JobId("j"), task="t", problem="p", trajectories=attempts)


def even(tokens):
    """The share of even tokens: something that a model can come to prefer."""
    return sum(token % 2 == 0 for token in tokens) / len(tokens)
