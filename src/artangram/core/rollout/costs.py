"""What a request costs on a replica: what it is made of, and how fast each class reads and writes.

- `Speeds` are declared or measured; so is the share of a session's prefix that a class still has
  when the session comes back.
- `Habits` are what the requests of each task turned out to be.
- `Costs` are seconds: until a request is done, and those that all answers written on the same
  replica lose while it is read.
"""

from collections.abc import Mapping
from math import inf

from msgspec import Struct

UNKNOWN_DECODE = 128.0
"""Tokens of an answer of a new task."""


class TokenWork(Struct, frozen=True, gc=False):
    """Tokens to be read, and tokens to be written."""

    prefill: float
    decode: float


class Rates(Struct, frozen=True, kw_only=True, gc=False):
    """How fast one replica of a class works."""

    prefill_per_s: float
    decode_per_s: float
    """Of one request, beside as many others as there are lanes."""
    alone_per_s: float | None = None
    """Of one request without company; unless said, twice as fast."""
    lanes: int = 64
    """Requests it writes side by side; reading is one after the other."""
    context: int = 4096
    """Tokens of the context of each, at these speeds."""
    context_token_s: float = 0.0
    """What each further token of a context adds to a token of everyone on the replica."""
    hit_rate: float = 1.0
    """Of what it has read before: the rest it has forgotten, and reads again."""
    cache_tokens: float = inf
    """Tokens of contexts that it can hold, running or kept for later; infinite if not known."""

    def service_s(self, work: TokenWork) -> float:
        """For a request of its own."""
        return work.prefill / self.prefill_per_s + work.decode / self.decode_per_s

    @property
    def alone_token_s(self) -> float:
        return 1.0 / (self.alone_per_s or 2.0 * self.decode_per_s)

    @property
    def company_token_s(self) -> float:
        """What each other request adds to it."""
        return max(0.0, 1.0 / self.decode_per_s - self.alone_token_s) / self.lanes

    def backlog_s(self, work: TokenWork) -> float:
        """Until a request that comes after `work` has the replica's attention."""
        return work.prefill / self.prefill_per_s + work.decode / (self.decode_per_s * self.lanes)


GUESS = Rates(prefill_per_s=5000.0, decode_per_s=50.0)
"""Of a class without measurements: reading is a hundred times faster than writing."""


class Candidate(Struct, frozen=True, kw_only=True, gc=False):
    """A replica that could take the request."""

    name: str
    hardware: str
    outstanding: TokenWork
    holds: int = 0
    """Tokens of the session that it has read and believes to have kept."""
    takes: int = 0
    """Tokens of the prompt that another has read for it."""
    reads_per_s: float = 0.0
    """Prompt tokens that it got recently, for all its requests."""
    turns: int = 0
    """That it has now."""


class RoutedRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A request, as routing sees it."""

    task: str
    prompt_tokens: int
    most_tokens: int
    """It may write."""
    turn: int = 0
    """Turns of its session before this one."""
    session: str = ""
    """Its name; a request without one is a session by itself that no cache is kept for."""


class Observed(Struct, frozen=True, kw_only=True, gc=False):
    """What a request turned out to be."""

    task: str
    hardware: str
    work: TokenWork
    prefill_s: float | None = None
    """`None` when it had to wait for others, so that it is unknown."""
    decode_s: float | None = None
    held: int = 0
    """Tokens of its session that the replica had read before."""
    found: int | None = None
    """Tokens that were still in its cache; `None` if the engine does not say."""


class FadingMean(Struct):
    """A mean that forgets."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        # A plain mean at first, so that the first value does not weigh for long.
        self.value += (value - self.value) * max(1.0 / self.count, _MEMORY)


_MEMORY = 0.05


class Speeds:
    """How fast each class is: as declared, else as measured, else a guess."""

    def __init__(self, declared: Mapping[str, Rates] | None = None) -> None:
        self._declared = dict(declared or {})
        self._prefill: dict[str, FadingMean] = {}
        self._decode: dict[str, FadingMean] = {}
        self._held: dict[str, FadingMean] = {}
        self._kept: dict[str, FadingMean] = {}

    def of(self, hardware: str) -> Rates:
        if hardware in self._declared:
            return self._declared[hardware]
        decode = _rate(self._decode.get(hardware), GUESS.decode_per_s)
        # Reading can only be measured on an idle replica; until then it is as much faster as usual.
        usual = decode * GUESS.prefill_per_s / GUESS.decode_per_s
        prefill = _rate(self._prefill.get(hardware), usual)
        return Rates(prefill_per_s=prefill, decode_per_s=decode)

    def hit_rate(self, hardware: str) -> float:
        """Of what its replicas have read before: as engines reported, else as declared."""
        held = self._held.get(hardware)
        if held is None:
            return self.of(hardware).hit_rate
        return min(1.0, self._kept[hardware].value / held.value)

    def samples(self, hardware: str) -> float:
        """How often it was measured; declared is as good as always."""
        if hardware in self._declared:
            return float("inf")
        return self._decode[hardware].count if hardware in self._decode else 0

    def learn(self, seen: Observed) -> None:
        if seen.found is not None and seen.held:
            self._held.setdefault(seen.hardware, FadingMean()).add(seen.held)
            self._kept.setdefault(seen.hardware, FadingMean()).add(seen.found)
        if seen.prefill_s and seen.work.prefill > 0:
            book = self._prefill.setdefault(seen.hardware, FadingMean())
            book.add(seen.prefill_s / seen.work.prefill)
        if seen.decode_s and seen.work.decode > 0:
            book = self._decode.setdefault(seen.hardware, FadingMean())
            book.add(seen.decode_s / seen.work.decode)


def _rate(seconds_per_token: FadingMean | None, guess: float) -> float:
    if seconds_per_token is None or seconds_per_token.value <= 0.0:
        return guess
    return 1.0 / seconds_per_token.value


class Habits:
    """What the requests of each task are made of."""

    def __init__(self) -> None:
        self._prefill: dict[str, FadingMean] = {}
        self._decode: dict[str, FadingMean] = {}
        self._place: dict[str, FadingMean] = {}
        self._prompt: dict[str, FadingMean] = {}
        self._answer = UNKNOWN_DECODE

    def asked(self, wanted: RoutedRequest) -> None:
        """Take note of a request."""
        self._place.setdefault(wanted.task, FadingMean()).add(wanted.turn)
        self._prompt.setdefault(wanted.task, FadingMean()).add(wanted.prompt_tokens)

    def prompt(self, task: str) -> float | None:
        """Tokens of its prompts, on average; `None` if none was asked."""
        return self._prompt[task].value if task in self._prompt else None

    def turns_left(self, wanted: RoutedRequest) -> float:
        """Turns of its session that are expected after this one.

        Requests are on average in the middle of their sessions. An old session goes on, too: for
        a quarter of what was expected at first.
        """
        if wanted.task not in self._place:
            return 0.0
        most = 2.0 * self._place[wanted.task].value
        return max(most - wanted.turn, 0.25 * most)

    def learn(self, seen: Observed) -> None:
        self._prefill.setdefault(seen.task, FadingMean()).add(seen.work.prefill)
        self._decode.setdefault(seen.task, FadingMean()).add(seen.work.decode)
        books = self._decode.values()
        if written := sum(one.count * one.value for one in books):
            self._answer = sum(one.count * one.value**2 for one in books) / written

    def decode(self, task: str) -> float:
        return self._decode[task].value if task in self._decode else UNKNOWN_DECODE

    def answer(self) -> float:
        """Tokens of the answer that a token is part of, on average.

        Replicas spend their time on long answers, however many short ones they give.
        """
        return self._answer

    def typical(self, task: str) -> TokenWork | None:
        """`None` until one has ended."""
        if task not in self._decode:
            return None
        return TokenWork(self._prefill[task].value, self._decode[task].value)


class Costs:
    """What a request costs on a replica, in seconds: its own, and those that others lose by it."""

    def __init__(self, speeds: Speeds, habits: Habits) -> None:
        self.speeds = speeds
        self.habits = habits

    def work(self, wanted: RoutedRequest, one: Candidate) -> TokenWork:
        """What the request is expected to be for that replica."""
        kept = max(self.speeds.hit_rate(one.hardware) * one.holds, one.takes)
        return TokenWork(max(0.0, wanted.prompt_tokens - kept), self.answer(wanted))

    def _unread(self, wanted: RoutedRequest, one: Candidate) -> float:
        """As if its class forgot no more than was declared.

        Learned hit rates do not count here. Where memory is short they fall; sessions that trusted
        them would leave, be read elsewhere, take memory there, and the rates would fall further.
        """
        kept = max(self.speeds.of(one.hardware).hit_rate * one.holds, one.takes)
        return max(0.0, wanted.prompt_tokens - kept)

    def answer(self, wanted: RoutedRequest) -> float:
        """Tokens it is expected to write."""
        return min(self.habits.decode(wanted.task), float(wanted.most_tokens))

    def whole_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """Of all of it on one replica, for itself and for others."""
        there_s = self.read_s(wanted, one)
        return self.written_s(wanted, one, there_s=there_s) + self.others_s(wanted, one)

    def read_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """Until it has read the prompt."""
        rates = self.speeds.of(one.hardware)
        unread = self._unread(wanted, one)
        return rates.backlog_s(one.outstanding) + unread / rates.prefill_per_s

    def written_s(self, wanted: RoutedRequest, one: Candidate, *, there_s: float) -> float:
        """Until it has written the answer to what has been read in `there_s`."""
        rates = self.speeds.of(one.hardware)
        begins_s = max(there_s, rates.backlog_s(one.outstanding))
        writes = 1.0 - min(_MOST_READING, one.reads_per_s / rates.prefill_per_s)
        return begins_s + self.answer(wanted) / (rates.decode_per_s * writes)

    def others_s(self, wanted: RoutedRequest, one: Candidate) -> float:
        """What others lose: while it is read, no answer on that replica goes on."""
        answers = one.outstanding.decode / self.habits.answer()
        unread = self._unread(wanted, one)
        return answers * unread / self.speeds.of(one.hardware).prefill_per_s


_MOST_READING = 0.9
"""Largest share of its time that a replica is assumed to read: a burst of prompts says little
about what follows."""
