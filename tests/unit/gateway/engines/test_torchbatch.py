"""The embedded engine's steps: what is sampled is what the trainer would score."""

from collections import defaultdict
from collections.abc import Iterable

import pytest
import torch
from models_support import a_model, some_sequences

from artangram.core.errors import BadInput
from artangram.gateway.engines import torchbatch
from artangram.gateway.engines.protocol import EngineRequest, FinishReason, Sampling
from artangram.gateway.engines.torchbatch import DecodeBatch
from artangram.gateway.engines.torchwire import Sampled, StreamEnded
from artangram.models.causal import score
from artangram.models.llama import Llama
from artangram.models.packed import pack

CONTEXT = 64


class Heard:
    """What a batch told, by stream."""

    def __init__(self, batch: DecodeBatch) -> None:
        self.batch = batch
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.logprobs: dict[int, list[float]] = defaultdict(list)
        self.versions: dict[int, list[int]] = defaultdict(list)
        self.ends: dict[int, FinishReason] = {}

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.hear(self.batch.step())
            self.hear(self.batch.fresh())

    def all_steps(self) -> None:
        for _ in range(1000):
            if self.batch.is_idle:
                return
            self.steps(1)
        raise AssertionError(f"{self.batch} does not get on")

    def hear(self, news: Iterable[Sampled | StreamEnded]) -> None:
        for one in news:
            assert one.stream not in self.ends
            if isinstance(one, StreamEnded):
                self.ends[one.stream] = one.reason
            else:
                self.tokens[one.stream] += one.chunk.token_ids
                self.logprobs[one.stream] += one.chunk.logprobs
                self.versions[one.stream] += [one.chunk.version] * len(one.chunk.token_ids)


def a_batch(model: Llama, *, num_slots: int = 4) -> DecodeBatch:
    return DecodeBatch(model, num_slots, max_context=CONTEXT, version=3, seed=0)


def a_request(
    prompt: list[int], *, max_tokens: int = 8, session: str = "", **how: float
) -> EngineRequest:
    sampling = Sampling(max_tokens=max_tokens, **how)
    return EngineRequest(id="r", prompt=tuple(prompt), sampling=sampling, session=session)


def rescored(
    model: Llama, prompt: list[int], answer: list[int], *, temperature: float = 1.0
) -> list[float]:
    """What the training path says of an answer."""
    at = torch.arange(len(prompt), len(prompt) + len(answer))
    with torch.no_grad():
        found = score(model, pack([prompt + answer]), at=at, temperature=temperature)
    return found.logprobs.tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_ratio_of_unchanged_weights_is_one(temperature: float):
    model = a_model()
    heard = Heard(a_batch(model))
    prompts = some_sequences(*range(1, 20))
    for stream, prompt in enumerate(prompts):
        wanted = a_request(prompt, max_tokens=3 + stream, temperature=temperature)
        heard.batch.add(stream, wanted)
        heard.steps(stream % 3)
    heard.all_steps()
    for stream, prompt in enumerate(prompts):
        assert len(heard.tokens[stream]) == 3 + stream
        expected = rescored(model, prompt, heard.tokens[stream], temperature=temperature)
        assert heard.logprobs[stream] == pytest.approx(expected, abs=1e-5)


def test_a_request_goes_on_under_new_weights_as_if_they_had_read_everything():
    old, new = a_model(seed=1), a_model(seed=2)
    heard = Heard(a_batch(old))
    prompts = some_sequences(5, 9)
    for stream, prompt in enumerate(prompts):
        heard.batch.add(stream, a_request(prompt, max_tokens=10))
    heard.steps(4)
    before = [list(heard.tokens[stream]) for stream in range(2)]
    heard.batch.load(4, new.tensors())
    heard.all_steps()
    for stream, prompt in enumerate(prompts):
        told = len(before[stream])
        assert heard.versions[stream] == [3] * told + [4] * (10 - told)
        rest = heard.tokens[stream][told:]
        expected = rescored(new, prompt + before[stream], rest)
        assert heard.logprobs[stream][told:] == pytest.approx(expected, abs=1e-5)


def test_weights_that_do_not_fit_change_nothing():
    heard = Heard(a_batch(a_model()))
    heard.batch.add(0, a_request([1, 2]))
    heard.steps(2)
    with pytest.raises(BadInput):
        heard.batch.load(4, {})
    heard.all_steps()
    assert set(heard.versions[0]) == {3}
    assert heard.logprobs[0] == pytest.approx(
        rescored(a_model(), [1, 2], heard.tokens[0]), abs=1e-5
    )


def two_turns(
    batch: DecodeBatch, *, between: list[EngineRequest]
) -> tuple[list[float], list[float], int]:
    """A session's two turns with others in between: logprobs of the second, told and scored anew,
    and how many tokens of prompts it cost."""
    heard = Heard(batch)
    heard.batch.add(0, a_request([1, 2, 3, 4], session="s"))
    heard.all_steps()
    for stream, request in enumerate(between, start=2):
        heard.batch.add(stream, request)
        heard.all_steps()
    counted = batch.stats(is_paused=False).prompt_tokens
    history = [1, 2, 3, 4, *heard.tokens[0], 9, 8]
    heard.batch.add(1, a_request(history, session="s"))
    heard.all_steps()
    cost = batch.stats(is_paused=False).prompt_tokens - counted
    return heard.logprobs[1], rescored(a_model(), history, heard.tokens[1]), cost


def test_the_next_turn_of_a_session_appends_only_what_is_new():
    told, expected, cost = two_turns(a_batch(a_model()), between=[])
    assert told == pytest.approx(expected, abs=1e-5)
    assert cost == 1 + 2  # The token sampled last was never appended.


def test_a_session_keeps_its_slot_while_there_are_others():
    others = [a_request([7], session=f"o{n}") for n in range(3)]
    assert two_turns(a_batch(a_model()), between=others)[2] == 3


def test_the_session_longest_unused_gives_its_slot_up():
    others = [a_request([7], session=f"o{n}") for n in range(4)]
    told, expected, cost = two_turns(a_batch(a_model()), between=others)
    assert told == pytest.approx(expected, abs=1e-5)
    assert cost == 4 + 8 + 2


def test_a_session_that_tells_another_story_keeps_only_what_is_shared():
    model = a_model()
    heard = Heard(a_batch(model))
    heard.batch.add(0, a_request([1, 2, 3, 4], session="s"))
    heard.all_steps()
    heard.batch.add(1, a_request([1, 2, 9], session="s"))
    heard.all_steps()
    assert heard.logprobs[1] == pytest.approx(rescored(model, [1, 2, 9], heard.tokens[1]), abs=1e-5)


def test_two_turns_of_a_session_at_once_do_not_mix():
    model = a_model()
    heard = Heard(a_batch(model, num_slots=2))
    for stream in range(6):
        heard.batch.add(stream, a_request([stream, 1], session="s", max_tokens=3 + stream))
    heard.all_steps()
    for stream in range(6):
        expected = rescored(model, [stream, 1], heard.tokens[stream])
        assert heard.logprobs[stream] == pytest.approx(expected, abs=1e-5)
    for stream in (6, 7):
        heard.batch.add(stream, a_request([1]))
    heard.steps(1)
    assert heard.batch.stats(is_paused=False).running == 2


def test_a_turn_may_ask_again_what_the_last_one_asked():
    model = a_model()
    heard = Heard(a_batch(model))
    for stream, prompt in enumerate([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2]]):
        heard.batch.add(stream, a_request(prompt, session="s"))
        heard.all_steps()
        expected = rescored(model, prompt, heard.tokens[stream])
        assert heard.logprobs[stream] == pytest.approx(expected, abs=1e-5)


def test_kept_tokens_are_forgotten_with_the_weights_that_read_them():
    new = a_model(seed=2)
    heard = Heard(a_batch(a_model(seed=1)))
    heard.batch.add(0, a_request([1, 2, 3, 4], session="s"))
    heard.all_steps()
    heard.batch.load(4, new.tensors())
    history = [1, 2, 3, 4, *heard.tokens[0]]
    heard.batch.add(1, a_request(history, session="s"))
    heard.all_steps()
    assert heard.logprobs[1] == pytest.approx(rescored(new, history, heard.tokens[1]), abs=1e-5)


def test_an_aborted_request_leaves_its_slot_to_the_next():
    heard = Heard(a_batch(a_model(), num_slots=1))
    heard.batch.add(0, a_request([1], max_tokens=60))
    heard.batch.add(1, a_request([2], max_tokens=60))
    heard.batch.add(2, a_request([3]))
    heard.steps(2)
    heard.hear(heard.batch.abort(0))
    heard.hear(heard.batch.abort(1))
    heard.hear(heard.batch.abort(1))
    heard.all_steps()
    assert heard.ends == {0: "abort", 1: "abort", 2: "length"}
    assert (len(heard.tokens[0]), len(heard.tokens[1]), len(heard.tokens[2])) == (2, 0, 8)


def test_a_long_prompt_comes_in_pieces_while_others_sample(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torchbatch, "APPEND_WIDTH", 8)
    monkeypatch.setattr(torchbatch, "APPEND_TOKENS", 16)
    model = a_model()
    heard = Heard(a_batch(model))
    heard.batch.add(0, a_request([1], max_tokens=20))
    heard.steps(1)
    prompts = some_sequences(40, 30, 20)
    for stream, prompt in enumerate(prompts, start=1):
        heard.batch.add(stream, a_request(prompt))
    for seen in range(2, 6):
        heard.steps(1)
        assert (len(heard.tokens[0]), heard.tokens[1]) == (seen, [])
    heard.all_steps()
    for stream, prompt in enumerate(prompts, start=1):
        expected = rescored(model, prompt, heard.tokens[stream])
        assert heard.logprobs[stream] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("join_tokens", [0, torchbatch.JOIN_TOKENS])
def test_prompts_and_others_sample_the_same_in_one_pass_or_two(
    monkeypatch: pytest.MonkeyPatch, join_tokens: int
):
    monkeypatch.setattr(torchbatch, "JOIN_TOKENS", join_tokens)
    model = a_model()
    heard = Heard(a_batch(model))
    prompts = some_sequences(9, 5, 12)
    for stream, prompt in enumerate(prompts):
        heard.batch.add(stream, a_request(prompt))
        heard.steps(2)
    heard.all_steps()
    for stream, prompt in enumerate(prompts):
        expected = rescored(model, prompt, heard.tokens[stream])
        assert heard.logprobs[stream] == pytest.approx(expected, abs=1e-5)
    assert heard.batch.stats(is_paused=False).prompt_tokens == sum(map(len, prompts))


def test_the_same_seed_samples_the_same_in_any_company():
    alone, crowded = Heard(a_batch(a_model())), Heard(a_batch(a_model()))
    for stream in range(9):
        crowded.batch.add(stream, a_request([stream], max_tokens=2 + stream))
    for heard in (alone, crowded):
        heard.batch.add(10, a_request([5, 6], seed=11))
        heard.all_steps()
    assert alone.tokens[10] == crowded.tokens[10]
