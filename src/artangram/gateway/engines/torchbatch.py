"""The requests an embedded engine runs, and one step for all of them.

- A step appends what each request still owes its slot (a prompt, tokens of the environment, the
  token sampled last) and samples one token for each that owes no more.
- Long prompts are appended in pieces, so that the others get their tokens meanwhile.
- A session that has ended a turn keeps its slot until another one needs it, the one longest
  unused first; its next turn appends only what is new.
- After a change of weights everything kept is stale: sessions are forgotten, requests under way
  are appended anew and go on.
- A prompt that is read for another engine samples nothing; its last token is left to the other one.
- Everything here belongs to one thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from artangram.core.errors import BadInput
from artangram.gateway.engines import torchcache
from artangram.gateway.engines.protocol import (
    Alternatives,
    Cache,
    EngineRequest,
    FinishReason,
    Stats,
    TokenChunk,
)
from artangram.gateway.engines.torchsampler import Sampler
from artangram.gateway.engines.torchwire import Handed, Sampled, StreamEnded
from artangram.models.causal import CausalModel, MovableSlots

APPEND_TOKENS = 2048
"""The most prompt tokens, with their padding, that one step appends."""

APPEND_WIDTH = 256
"""The most prompt tokens of one request per step: the others wait no longer than that takes."""

JOIN_TOKENS = 96
"""Few prompts and few others are one pass up to this many tokens, with their padding: starting a
second pass costs more than the padding."""


class _Row:
    """A request that has a slot, or waits for one."""

    __slots__ = (
        "cache",
        "fresh",
        "known",
        "logprobs",
        "num_sampled",
        "path",
        "request",
        "room",
        "slot",
        "stop_ids",
        "stream",
        "tops",
    )

    def __init__(
        self,
        stream: int,
        request: EngineRequest,
        *,
        max_context: int,
        cache: Cache | None = None,
        path: Path | None = None,
    ) -> None:
        sampling = request.sampling
        self.stream = stream
        self.request = request
        self.cache = cache
        """What another engine has read of it."""
        self.path = path
        """Where to leave what was read, for another engine that goes on."""
        self.slot = 0
        self.known = list(request.prompt if path is None else request.prompt[:-1])
        self.room = min(sampling.max_tokens, max_context - len(request.prompt))
        self.stop_ids = frozenset(sampling.stop_ids)
        self.num_sampled = 0
        self.fresh: list[int] = []
        """Sampled, and not told yet."""
        self.logprobs: list[float] = []
        self.tops: list[Alternatives] = []

    def take(self, token: int, logprob: float, top: Alternatives) -> FinishReason | None:
        """The reason to end, if this token gives one."""
        self.known.append(token)
        self.fresh.append(token)
        self.logprobs.append(logprob)
        if top:
            self.tops.append(top)
        self.num_sampled += 1
        if token in self.stop_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.num_sampled == self.room else None


class _Places:
    """Which slots are free, and which are kept for a session's next turn."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots))[::-1]
        self._sessions: dict[str, tuple[int, list[int]]] = {}

    def take(self, request: EngineRequest) -> tuple[int, int] | None:
        """A slot for the request, and how many of its tokens the slot already holds."""
        if (kept := self._sessions.pop(request.session, None)) is not None:
            slot, tokens = kept
            # The last token has to be appended again, to see what follows it.
            return slot, min(_num_shared(tokens, request.prompt), len(request.prompt) - 1)
        if not self._free and self._sessions:
            longest_unused = next(iter(self._sessions))
            self._free.append(self._sessions.pop(longest_unused)[0])
        return (self._free.pop(), 0) if self._free else None

    def give_back(self, slot: int, session: str, tokens: list[int]) -> None:
        """The slot holds these tokens; keep it if a next turn may come."""
        if not session:
            self._free.append(slot)
            return
        if (other := self._sessions.pop(session, None)) is not None:
            self._free.append(other[0])
        self._sessions[session] = (slot, tokens)

    def forget(self) -> None:
        self._free += [slot for slot, _ in self._sessions.values()]
        self._sessions.clear()


class DecodeBatch:
    """See the module."""

    def __init__(
        self, model: CausalModel, num_slots: int, *, max_context: int, version: int, seed: int
    ) -> None:
        self.max_context = max_context
        self.vocab_size = model.vocab_size
        self._model = model
        self._version = version
        self._slots = model.slots(num_slots, max_context)
        self._sampler = Sampler(num_slots, max_context, seed=seed)
        self._places = _Places(num_slots)
        self._waiting: dict[int, _Row] = {}
        self._running: dict[int, _Row] = {}
        self._prompt_tokens = 0
        self._sampled_tokens = 0
        self._taken_tokens = 0

    def __repr__(self) -> str:
        return f"<Batch: {len(self._running)} running, {len(self._waiting)} waiting>"

    @property
    def cache_kind(self) -> str:
        return self._slots.kind if isinstance(self._slots, MovableSlots) else ""

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting

    def stats(self, *, is_paused: bool) -> Stats:
        return Stats(
            version=self._version,
            running=len(self._running),
            waiting=len(self._waiting),
            is_paused=is_paused,
            prompt_tokens=self._prompt_tokens,
            sampled_tokens=self._sampled_tokens,
            taken_tokens=self._taken_tokens,
        )

    def add(self, stream: int, request: EngineRequest, *, cache: Cache | None = None) -> None:
        row = _Row(stream, request, max_context=self.max_context, cache=cache)
        self._waiting[stream] = row

    def read(self, stream: int, request: EngineRequest, *, path: Path) -> None:
        """Read it for another engine."""
        row = _Row(stream, request, max_context=self.max_context, path=path)
        self._waiting[stream] = row

    def abort(self, stream: int) -> list[Sampled | StreamEnded]:
        """End a request now; nothing if it has ended."""
        if self._waiting.pop(stream, None) is not None:
            return [StreamEnded(stream, FinishReason.ABORT)]
        row = self._running.get(stream)
        return [] if row is None else self._ended(row, FinishReason.ABORT)

    def step(self) -> list[Sampled | StreamEnded | Handed]:
        """Sample a token for every request that is ready. The news of requests that ended."""
        self._admit()
        news = self._handed_over()
        owing = [(row, len(row.known) - self._slots.lengths[row.slot]) for row in self._rows()]
        appending = [row for row, owed in owing if owed > 1 or row.path]
        decoding = [row for row, owed in owing if owed == 1 and not row.path]
        if appending and max(owed for _, owed in owing) * len(owing) <= JOIN_TOKENS:
            return [*news, *self._append([row for row, _ in owing])]
        if appending:
            news += self._append(appending)
        if decoding:
            last = [row.known[-1:] for row in decoding]
            news += self._sample(decoding, self._slots.extend(_slots(decoding), last))
        return news

    def fresh(self) -> list[Sampled]:
        """The tokens that were not reported yet."""
        return [self._told(row) for row in self._rows() if row.fresh]

    def load(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Sample with these weights from now on. Raises `BadInput` and changes nothing."""
        assert not self.fresh(), "tokens of the old version are to be told before"
        self._model.assign(tensors)
        self._version = version
        self._places.forget()
        for row in self._rows():
            self._slots.cut(row.slot, 0)

    def _rows(self) -> Iterable[_Row]:
        return self._running.values()

    def _admit(self) -> None:
        """Give slots to requests that wait, first come, first served."""
        while self._waiting:
            stream, row = next(iter(self._waiting.items()))
            found = self._places.take(row.request)
            if found is None:
                return
            row.slot, held = found
            self._slots.cut(row.slot, held)
            self._take_over(row)
            self._sampler.prepare(
                row.slot,
                row.request.sampling,
                room=row.room,
                prompt=row.request.prompt,
                num_sampled=row.request.num_sampled,
            )
            self._running[stream] = self._waiting.pop(stream)

    def _take_over(self, row: _Row) -> None:
        """Hold what another engine has read of it, if that is more and fits."""
        held = self._slots.lengths[row.slot]
        cache, prompt = row.cache, row.request.prompt
        if cache is None or not held < cache.tokens < len(prompt):
            return
        copied = torchcache.loaded(cache, prompt=prompt, version=self._version)
        if copied is None or not isinstance(self._slots, MovableSlots):
            return
        try:
            self._slots.put(row.slot, copied)
        except BadInput:
            return  # It is another model's: read it ourselves.
        self._taken_tokens += cache.tokens - held

    def _handed_over(self) -> list[Sampled | StreamEnded | Handed]:
        """Leave what was read for others where they find it."""
        lengths = self._slots.lengths
        read = [row for row in self._rows() if row.path and lengths[row.slot] == len(row.known)]
        news: list[Sampled | StreamEnded | Handed] = []
        for row in read:
            cache = self._left(row)
            (end,) = self._ended(row, FinishReason.ABORT)
            news.append(end if cache is None else Handed(row.stream, cache))
        return news

    def _left(self, row: _Row) -> Cache | None:
        if row.path is None or not isinstance(self._slots, MovableSlots):
            return None
        copied = self._slots.copied(row.slot)
        return torchcache.saved(copied, row.path, tokens=row.known, version=self._version)

    def _append(self, rows: Sequence[_Row]) -> list[Sampled | StreamEnded]:
        """Append pieces of prompts; sample for those that are complete."""
        chosen: list[_Row] = []
        pieces: list[list[int]] = []
        width = 0
        for row in rows:
            held = self._slots.lengths[row.slot]
            piece = row.known[held : held + APPEND_WIDTH]
            width = max(width, len(piece))
            if chosen and width * (len(chosen) + 1) > APPEND_TOKENS:
                break
            chosen.append(row)
            pieces.append(piece)
        self._prompt_tokens += sum(len(piece) for piece in pieces if len(piece) > 1)
        logits = self._slots.extend(_slots(chosen), pieces)
        lengths = self._slots.lengths
        is_ready = [lengths[row.slot] == len(row.known) and not row.path for row in chosen]
        ready = [row for row, samples in zip(chosen, is_ready, strict=True) if samples]
        return self._sample(ready, logits[torch.tensor(is_ready)]) if ready else []

    def _sample(self, rows: Sequence[_Row], logits: Tensor) -> list[Sampled | StreamEnded]:
        counts = [row.num_sampled for row in rows]
        drawn = self._sampler.draw(logits, _slots(rows), counts=counts)
        self._sampled_tokens += len(rows)
        news: list[Sampled | StreamEnded] = []
        each = zip(rows, drawn.token_ids, drawn.logprobs, drawn.tops, strict=True)
        for row, token, logprob, top in each:
            if (reason := row.take(token, logprob, top)) is not None:
                news += self._ended(row, reason)
        return news

    def _ended(self, row: _Row, reason: FinishReason) -> list[Sampled | StreamEnded]:
        del self._running[row.stream]
        held = row.known[: self._slots.lengths[row.slot]]
        self._places.give_back(row.slot, row.request.session, held)
        last: list[Sampled | StreamEnded] = [self._told(row)] if row.fresh else []
        return [*last, StreamEnded(row.stream, reason)]

    def _told(self, row: _Row) -> Sampled:
        tops = tuple(row.tops)
        chunk = TokenChunk(tuple(row.fresh), tuple(row.logprobs), self._version, tops)
        row.fresh, row.logprobs, row.tops = [], [], []
        return Sampled(row.stream, chunk)


def _slots(rows: Sequence[_Row]) -> list[int]:
    return [row.slot for row in rows]


def _num_shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    most = min(len(left), len(right))
    return next((n for n in range(most) if left[n] != right[n]), most)
