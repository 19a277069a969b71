"""Teachers of a run: models that say how likely they find the tokens that the student sampled.

- A teacher is a model's directory, which is loaded here, or the URL of a vLLM server.
- It reads the very tokens, so it needs the student's tokenizer; a prefix that it would not have
  written itself is scored like any other.
- A directory is scored at the temperature at which each token was sampled; a server scores at 1.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec
import torch
from msgspec import Struct

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.rollout.trajectory import Group
from artangram.models.causal import score
from artangram.pipeline.settings import is_url
from artangram.train.learner import TeacherLogprobs
from artangram.train.placing import placed
from artangram.train.samples import Sample, attempt_samples, micro_batches, rows_of

logger = logging.getLogger(__name__)

MOST_TOKENS = 8192
"""Of a micro-batch."""
AT_ONCE = 16
"""Requests to one server."""
TRIES, LONGEST_S = 12, 60.0
"""At a request that fails, for about six minutes, with a growing pause of at most this."""


class ScoringTeacher(Protocol):
    async def score(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """The logprobs of each sample's sampled tokens."""
        ...


class LoadedTeacher:
    """A model of a directory, in this process."""

    def __init__(self, directory: Path, *, device: str) -> None:
        self._directory = directory
        self._model = placed(directory, device, seed=0)

    def __repr__(self) -> str:
        return f"<LoadedTeacher {self._directory}>"

    async def score(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        return await asyncio.to_thread(self._score, samples)

    @torch.no_grad()
    def _score(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        found: dict[tuple[str, int], tuple[float, ...]] = {}
        for batch in micro_batches(samples, max_tokens=MOST_TOKENS):
            rows = rows_of(batch, version=0)
            scored = score(self._model, rows.packed, at=rows.at, temperature=rows.heat)
            parts = torch.split(scored.logprobs, [len(sample.sampled) for sample in batch])
            for sample, part in zip(batch, parts, strict=True):
                found[sample.trajectory, sample.before] = tuple(part.tolist())
        return [found[sample.trajectory, sample.before] for sample in samples]


class _PromptLogprob(Struct):
    logprob: float


class _ScoredChoice(Struct):
    prompt_logprobs: list[dict[str, _PromptLogprob] | None]


class _Completion(Struct):
    choices: list[_ScoredChoice]


class ServedTeacher:
    """A model behind the completions of a vLLM server, which can score a prompt."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._room = asyncio.Semaphore(AT_ONCE)
        self._model = ""

    def __repr__(self) -> str:
        return f"<ServedTeacher {self._url}>"

    async def score(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        if any(set(sample.temperatures) != {1.0} for sample in samples):
            fix = "sample at temperature 1, or give the teacher's directory"
            raise BadInput("teachers", f"{self._url} scores at temperature 1 only", fix)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
            if not self._model:
                listed = await self._asked(session, "/v1/models", None)
                self._model = str(listed["data"][0]["id"])
            return list(await asyncio.gather(*(self._scored(session, one) for one in samples)))

    async def _scored(self, session: aiohttp.ClientSession, sample: Sample) -> tuple[float, ...]:
        body = {
            "model": self._model,
            "prompt": list(sample.token_ids),
            "max_tokens": 1,
            "prompt_logprobs": 1,
        }
        async with self._room:
            found = await self._asked(session, "/v1/completions", body)
        try:
            (choice,) = msgspec.convert(found, type=_Completion).choices
            rows = [choice.prompt_logprobs[place] or {} for place in sample.sampled]
            wanted = [str(sample.token_ids[place]) for place in sample.sampled]
            return tuple(row[token].logprob for row, token in zip(rows, wanted, strict=True))
        except (msgspec.ValidationError, ValueError, LookupError) as error:
            fix = "serve the teacher with vLLM, or give its directory"
            raise BadInput(
                "teachers", f"{self._url} says no logprobs of a prompt: {error!r}", fix
            ) from error

    async def _asked(
        self, session: aiohttp.ClientSession, path: str, body: dict[str, Any] | None
    ) -> Any:
        """Its answer; a server that is away is asked again."""
        for number in range(TRIES):
            try:
                async with session.request(
                    "GET" if body is None else "POST", f"{self._url}{path}", json=body
                ) as answer:
                    if answer.status < 500:
                        return await self._accepted(answer)
                    problem = f"answers {answer.status}"
            except (aiohttp.ClientError, TimeoutError) as error:
                problem = repr(error)
            logger.warning("teacher %s: %s; trying again", self._url, problem)
            await asyncio.sleep(min(LONGEST_S, 0.5 * 2**number))
        raise InfraFailed(f"the teacher {self._url} {problem}; continue with --resume")

    async def _accepted(self, answer: aiohttp.ClientResponse) -> Any:
        if answer.status >= 400:
            problem = f"{self._url} refuses: {(await answer.text())[:200]}"
            raise BadInput("teachers", problem, "see that its context is long enough")
        return await answer.json()


class Classroom:
    """The teachers of each task."""

    def __init__(self, by_task: Mapping[str, Sequence[str]], *, device: str) -> None:
        """Load those that are directories. Raises `BadInput`."""
        named = dict.fromkeys(name for names in by_task.values() for name in names)
        made = {name: _teacher(name, device) for name in named}
        self._by_task = {task: [made[n] for n in names] for task, names in by_task.items()}

    def __repr__(self) -> str:
        return f"<Classroom {self._by_task}>"

    async def said(self, groups: Sequence[Group]) -> TeacherLogprobs:
        """What the teachers of each group's task say of its attempts."""
        found: dict[str, tuple[tuple[float, ...], ...]] = {}
        for task in {group.task for group in groups}:
            samples = [
                sample
                for group in groups
                if group.task == task
                for trajectory in group.trajectories
                for sample in attempt_samples(trajectory, 0.0)
            ]
            by_teacher = await asyncio.gather(*(t.score(samples) for t in self._by_task[task]))
            attempts: dict[str, list[list[float]]] = {}
            for number, sample in enumerate(samples):
                rows = attempts.setdefault(sample.trajectory, [[] for _ in by_teacher])
                for row, scored in zip(rows, by_teacher, strict=True):
                    row += scored[number]
            found |= {name: tuple(map(tuple, rows)) for name, rows in attempts.items()}
        return found


def _teacher(name: str, device: str) -> ScoringTeacher:
    return ServedTeacher(name) if is_url(name) else LoadedTeacher(Path(name), device=device)
