"""One token per known word, and nothing is lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.core.errors import BadInput
from artangram.models import ROLES, Message, Vocabulary, load_tokenizer
from artangram.models.vocabulary import CONTROL, PAD

TEXT = "<call> read 37, then (twice) say: 'x = 4'?\nend abc <end> \t"
VOCABULARY = Vocabulary.of([TEXT, "0123456789"])
texts = st.text(alphabet=sorted(set(TEXT)), max_size=30)
messages = st.lists(st.builds(Message, st.sampled_from(ROLES), texts), max_size=4)


@given(texts)
def test_a_text_of_known_characters_comes_back_as_it_was(text: str):
    assert VOCABULARY.decode(VOCABULARY.encode(text)) == text


@given(st.lists(st.sampled_from(["<call>", "read", "abc", " ", "  ", "3", ",", "q", "say", "x"])))
def test_a_text_of_words_comes_back_as_it_was(pieces: list[str]):
    text = "".join(pieces).replace("q", "~")
    decoded = VOCABULARY.decode(VOCABULARY.encode(text))
    assert decoded == text.replace("~", "\ufffd")


def test_a_usual_space_costs_no_token():
    assert len(VOCABULARY.encode("<call> read 37, 4 read")) == 8


@given(messages, messages)
def test_a_history_grows_by_a_suffix(before: list[Message], after: list[Message]):
    rendered = VOCABULARY.render(before) + VOCABULARY.render(after)
    assert VOCABULARY.render(before + after) == rendered


def test_a_rendered_reply_is_what_would_have_been_sampled():
    sampled = (*VOCABULARY.encode("read 3"), VOCABULARY.eos_id)
    assert VOCABULARY.render([Message("assistant", "read 3")]) == VOCABULARY.opening() + sampled


@given(texts | st.sampled_from([f"a{control}b" for control in (*CONTROL, "<user>")]))
def test_no_text_can_forge_a_control_token(text: str):
    forbidden = {VOCABULARY.eos_id, CONTROL.index(PAD), *VOCABULARY.opening()}
    forbidden |= {VOCABULARY.render([Message(role, "")])[0] for role in ROLES}
    assert not forbidden & set(VOCABULARY.encode(text))


def test_a_control_token_has_no_text():
    assert VOCABULARY.decode((*VOCABULARY.encode("say"), VOCABULARY.eos_id)) == "say"


def test_a_saved_vocabulary_is_found_in_its_directory(tmp_path: Path):
    VOCABULARY.save(tmp_path)
    found = load_tokenizer(tmp_path)
    assert (found.vocab_size, found.encode(TEXT)) == (
        VOCABULARY.vocab_size,
        VOCABULARY.encode(TEXT),
    )


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="save a tokenizer there first"):
        load_tokenizer(tmp_path)


def test_a_piece_may_not_stand_twice():
    with pytest.raises(BadInput, match="are repeated or reserved"):
        Vocabulary(["read", "<end>"])


def test_an_unknown_role_is_refused():
    with pytest.raises(BadInput, match="use one of system"):
        VOCABULARY.render([Message("narrator", "")])
