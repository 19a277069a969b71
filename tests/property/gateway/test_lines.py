"""One session, spoken to in every way at once: the model reads what its caller said, and what is
kept of it is what was sampled, after exactly what the model had read."""

import asyncio
from contextlib import suppress
from itertools import count

import looptime
import pytest
from gateway_support import WORDS
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.core.errors import BadInput
from artangram.gateway import Gateway, Sampling
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.history import TokenHistory
from artangram.gateway.http import plain
from artangram.gateway.http.answer import Head
from artangram.gateway.http.chat import Chat
from artangram.gateway.http.conversation import Branch, Conversation
from artangram.gateway.http.dialect import CallDialect
from artangram.gateway.http.plain import PlainCompletion, PromptHistories
from artangram.gateway.http.wire import ChatMessage, ChatRequest, CompletionRequest
from artangram.models.tokenizer import Message

HEAD = Head(id="a", created=0, model="tiny")
NAMES = ("cat", "dog", "mat")
# Who asks, which of the answers before he goes on from, and for how many choices.
asks = st.tuples(
    st.sampled_from(["chat", "text", "tokens", "generate"]), st.integers(0, 5), st.integers(1, 2)
)
waves = st.lists(st.lists(asks, min_size=1, max_size=3), min_size=1, max_size=4)


class World:
    """A session, and all that was read and said in it."""

    def __init__(self) -> None:
        number = count()
        engine = ScriptedEngine(
            lambda _: (*WORDS.encode(NAMES[next(number) % 3]), WORDS.eos_id),
            pace=ScriptedPace(token_s=0.5),
        )
        self.gateway = Gateway()
        self.gateway.add(engine)
        self.session = self.gateway.open("s", tokenizer=WORDS)
        self.conversation = Conversation(self.session, WORDS)
        self.lines = PromptHistories(self.session, WORDS)
        self.chats: list[list[ChatMessage]] = [[]]
        self.texts = [""]
        self.turns: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        """What was read, and what was sampled then."""

    async def chat(self, start: int, choices: int) -> None:
        said = [*self.chats[start % len(self.chats)], ChatMessage(role="user", content="hello")]
        asked = ChatRequest(model="tiny", messages=said, n=choices, return_token_ids=True)
        more = {"tokenizer": WORDS, "dialect": CallDialect(WORDS), "asked": asked, "head": HEAD}
        answer = await Chat(self.session, self.conversation, **more).whole()
        for choice in answer.choices:
            messages = [Message(one.role, one.text()) for one in said]
            assert choice.artangram.prompt_token_ids == WORDS.render(messages) + WORDS.opening()
            self.chats.append(
                [*said, ChatMessage(role="assistant", content=choice.message.content)]
            )
            self._note(choice.artangram)

    async def text(self, start: int, choices: int) -> None:
        prompt = f"{self.texts[start % len(self.texts)]} the"
        for choice in await self._completed(prompt, choices):
            assert WORDS.decode(choice.artangram.prompt_token_ids) == prompt
            self.texts.append(prompt + choice.text)

    async def tokens(self, start: int, choices: int) -> None:
        before = sum(self.turns[start % len(self.turns)], ()) if self.turns else ()
        prompt = [*before, *WORDS.encode("and")]
        for choice in await self._completed(prompt, choices):
            assert list(choice.artangram.prompt_token_ids) == prompt

    async def _completed(self, prompt: str | list[int], choices: int) -> list:
        asked = CompletionRequest(model="tiny", prompt=prompt, n=choices, return_token_ids=True)
        more = {"tokenizer": WORDS, "asked": asked, "head": HEAD}
        answer = await PlainCompletion(self.session, self.lines, **more).whole()
        for choice in answer.choices:
            self._note(choice.artangram)
        return list(answer.choices)

    async def generate(self, start: int, choices: int) -> None:
        before = self.session.line.token_ids()
        given = WORDS.encode("on")
        with suppress(BadInput):  # It is in a turn.
            reply = await self.session.generate(given, Sampling(max_tokens=9))
            self.turns.append((before + given, reply.token_ids))

    def _note(self, exact) -> None:
        self.turns.append((exact.prompt_token_ids, exact.token_ids))

    def check(self) -> None:
        sampled = 0
        for line in self.session.lines:
            read: tuple[int, ...] = ()
            for segment in line.segments:
                if segment.is_sampled:
                    assert (read, segment.token_ids) in self.turns
                    sampled += 1
                read += segment.token_ids
            assert not line.is_busy
        assert sampled == len(self.turns)


async def _whole(drawn) -> None:
    world = World()
    for wave in drawn:
        await asyncio.gather(*(getattr(world, kind)(*rest) for kind, *rest in wave))
    world.check()
    await world.gateway.aclose()


def played(drawn) -> None:
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(_whole(drawn))
    finally:
        loop.close()


@settings(max_examples=60, deadline=None)
@given(waves)
def test_what_is_trained_was_sampled_after_what_stands_before_it(drawn):
    played(drawn)


def with_lines_that_are_never_busy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenHistory, "is_busy", property(lambda line: False, lambda line, value: None))


def with_branches_that_know_only_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Branch, "ends_after", lambda branch, length: len(branch.marks) == length)


def with_texts_that_never_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_is_up_to_date", lambda told: not told.line.is_busy)


@pytest.mark.parametrize(
    ("plant", "drawn"),
    [
        (with_lines_that_are_never_busy, [[("chat", 0, 1), ("text", 0, 1)]]),
        (
            with_branches_that_know_only_messages,
            [[("chat", 0, 1)], [("tokens", 0, 1)], [("chat", 1, 1)]],
        ),
        (with_texts_that_never_age, [[("text", 0, 1)], [("tokens", 0, 1)], [("text", 1, 1)]]),
    ],
)
def test_a_planted_bug_is_caught(plant, drawn, monkeypatch):
    played(drawn)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        played(drawn)
