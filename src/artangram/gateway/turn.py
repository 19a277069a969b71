"""One model call: its prompt, the tokens sampled so far, and how it ended.

A turn outlives the replica that serves it. Its tokens are kept here, so another replica continues
where the first one stopped, and each token keeps the version that sampled it.
"""

from msgspec import Struct, structs

from artangram.core.rollout.costs import RoutedRequest
from artangram.core.rollout.trajectory import Segment, VersionSpan
from artangram.gateway.engines.protocol import (
    Alternatives,
    EngineGone,
    EngineRequest,
    FinishReason,
    Sampling,
    TokenChunk,
)


class Reply(Struct, frozen=True, kw_only=True):
    """The model's answer and its tokens."""

    text: str
    """Empty when the session has no tokenizer."""
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[VersionSpan, ...]
    finish: FinishReason
    prompt_tokens: int
    wait_s: float
    """That it was without a replica."""
    run_s: float
    """The rest, on however many replicas."""
    replica: str
    """The one that finished it; empty when none ever took it."""
    tops: tuple[Alternatives, ...] = ()
    """Of each token, if the request asked for `top_logprobs`."""


class Turn:
    """Collects the chunks of one call; see the module."""

    __slots__ = (
        "_logprobs",
        "_spans",
        "_tops",
        "asked_at",
        "attempts",
        "finish",
        "id",
        "is_aborted",
        "number",
        "prompt",
        "read_elsewhere",
        "replica",
        "sampled",
        "sampling",
        "session",
        "stalls",
        "task",
        "waited_s",
        "waiting_since",
    )

    def __init__(
        self,
        turn_id: str,
        prompt: tuple[int, ...],
        *,
        sampling: Sampling,
        session: str,
        task: str,
        number: int = 0,
    ) -> None:
        """`number` turns of its session came before it."""
        self.id = turn_id
        self.prompt = prompt
        self.sampling = sampling
        self.session = session
        self.task = task
        self.number = number
        self.sampled: list[int] = []
        self._logprobs: list[float] = []
        self._spans: list[VersionSpan] = []
        self._tops: list[Alternatives] = []
        self.finish: FinishReason | None = None
        self.is_aborted = False
        self.replica = ""
        self.attempts = 0
        """Replicas that took it and are done with it."""
        self.read_elsewhere = 0.0
        """Tokens that were read for the replica that has it now."""
        self.stalls = 0
        """Replicas that stalled while they served it."""
        self.asked_at = 0.0
        self.waited_s = 0.0
        self.waiting_since: float | None = None

    @property
    def num_tokens(self) -> int:
        """Of what a replica would have to read now."""
        return len(self.prompt) + len(self.sampled)

    @property
    def tokens_left(self) -> int:
        return self.sampling.max_tokens - len(self.sampled)

    @property
    def wanted(self) -> RoutedRequest:
        """As routing sees it."""
        return RoutedRequest(
            task=self.task,
            prompt_tokens=self.num_tokens,
            most_tokens=self.tokens_left,
            turn=self.number,
            session=self.session,
        )

    @property
    def oldest_version(self) -> int | None:
        return min((span.version for span in self._spans), default=None)

    def waits(self, now: float) -> None:
        """It has no replica."""
        self.waiting_since = now

    def goes_on(self, now: float) -> None:
        """It has one, or needs none any more."""
        self.waited_s = self.queued_s(now)
        self.waiting_since = None

    def queued_s(self, now: float) -> float:
        """How long it was without a replica so far."""
        return self.waited_s + (0.0 if self.waiting_since is None else now - self.waiting_since)

    def request(self, *, max_context: int) -> EngineRequest:
        """What is left to do, for one replica."""
        room = max_context - self.num_tokens
        sampling = structs.replace(
            self.sampling,
            max_tokens=min(self.tokens_left, room),
            # The tokens after these must not be those that the seed gave first.
            seed=None if self.sampling.seed is None else self.sampling.seed + len(self.sampled),
        )
        return EngineRequest(
            id=f"{self.id}.{self.attempts}",
            prompt=self.prompt + tuple(self.sampled),
            sampling=sampling,
            session=self.session,
            num_sampled=len(self.sampled),
        )

    def take(self, chunk: TokenChunk) -> None:
        """Raises `EngineGone` if not every token has its logprob: nothing after it would fit."""
        start, end = len(self.sampled), len(self.sampled) + len(chunk.token_ids)
        if len(chunk.logprobs) != end - start:
            counts = f"{len(chunk.logprobs)} log-probabilities of {end - start} tokens"
            raise EngineGone(f"{self.replica} gave {counts}: none of it can be trained on")
        if start == end:
            return
        self.sampled += chunk.token_ids
        self._logprobs += chunk.logprobs
        self._tops += chunk.tops
        if self._spans and self._spans[-1].version == chunk.version:
            start = self._spans.pop().start
        self._spans.append(VersionSpan(chunk.version, start, end))

    def end_if_complete(self) -> None:
        """A replica may die between the last token and the news that it was the last."""
        if self.sampled and self.sampled[-1] in self.sampling.stop_ids:
            self.finish = FinishReason.STOP
        elif self.tokens_left <= 0:
            self.finish = FinishReason.LENGTH

    def stop_at(self, length: int) -> None:
        """Only the first `length` tokens were wanted, and they are the whole answer."""
        del self.sampled[length:], self._logprobs[length:], self._tops[length:]
        while self._spans[-1].start >= length:
            self._spans.pop()
        last = self._spans.pop()
        self._spans.append(VersionSpan(last.version, last.start, length))
        self.finish = FinishReason.STOP

    def segment(self) -> Segment:
        """What was sampled."""
        return Segment(
            token_ids=tuple(self.sampled),
            logprobs=tuple(self._logprobs),
            spans=tuple(self._spans),
            turn=self.number,
            # Of the likeliest token an engine gives the log-probability at 1.
            temperature=self.sampling.temperature or 1.0,
            shaped_by=self._shaping(),
        )

    def _shaping(self) -> tuple[str, ...]:
        is_likeliest = self.sampling.temperature == 0
        return (*(("temperature",) if is_likeliest else ()), *self.sampling.shaping)

    def reply(self, text: str, *, now: float) -> Reply:
        assert self.finish is not None
        return Reply(
            text=text,
            token_ids=tuple(self.sampled),
            logprobs=tuple(self._logprobs),
            spans=tuple(self._spans),
            finish=self.finish,
            prompt_tokens=len(self.prompt),
            wait_s=self.waited_s,
            run_s=now - self.asked_at - self.waited_s,
            replica=self.replica,
            tops=tuple(self._tops),
        )
