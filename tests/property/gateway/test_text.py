"""Text of tokens that keep coming is the text of all of them, however they are cut."""

import pytest
from gateway_support import WORDS
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_support import a_file

from artangram.gateway.text import Certain, StopTexts, TextStream, cut
from artangram.models.hftokenizer import HfTokenizer

token = st.integers(0, WORDS.vocab_size - 1)
# Also the same token many times over: spaces without a word between them are a hard case.
runs = st.lists(st.tuples(token, st.sampled_from([1, 1, 1, 40])), max_size=8)
token_ids = runs.map(lambda found: [one for one, times in found for _ in range(times)])
sizes = st.integers(1, 5).map(lambda size: [size] * 800)
unhurried = settings(deadline=None, max_examples=50)
texts = st.text("ab<c>", max_size=30)
marks = st.lists(st.text("ab<c>", min_size=1, max_size=4), max_size=3)


def pieces(whole, lengths):
    start = 0
    for length in lengths:
        if start >= len(whole):
            return
        yield whole[start : start + length]
        start += length


@unhurried
@given(token_ids, sizes)
def test_the_pieces_joined_are_the_whole(ids, lengths):
    stream = TextStream(WORDS)
    said = "".join(stream.push(piece) for piece in pieces(ids, lengths)) + stream.flush()
    assert said == WORDS.decode(ids)


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory):
    markers = ["<|im_start|>", "<|im_end|>"]
    return HfTokenizer(a_file(tmp_path_factory.mktemp("bytes"), markers=markers))


@unhurried
@given(ids=st.one_of(st.lists(st.integers(0, 257), max_size=60), token_ids), lengths=sizes)
def test_characters_of_several_tokens_come_whole(bytewise, ids, lengths):
    stream = TextStream(bytewise)
    said = "".join(stream.push(piece) for piece in pieces(ids, lengths)) + stream.flush()
    assert said == bytewise.decode(ids)


@unhurried
@given(st.text(max_size=40))
def test_what_each_token_adds_joined_is_the_whole(bytewise, text):
    ids = bytewise.encode(text)
    added = TextStream(bytewise).push_each(ids)
    assert len(added) == len(ids)
    assert "".join(added) == text.rstrip("\ufffd")


@unhurried
@given(texts, marks, sizes)
def test_nothing_from_a_mark_on_is_given_out_and_nothing_before_is_lost(text, ends, lengths):
    certain = Certain(ends)
    words = cut(text, ends)
    given_out = "".join(certain.push(piece) for piece in pieces(text, lengths))
    assert words.startswith(given_out)
    assert given_out + certain.rest(words) == words


@unhurried
@given(token_ids, st.lists(st.sampled_from(["cat", "at s", "the", "a m"]), min_size=1), sizes)
def test_a_stop_text_is_found_at_the_token_that_completes_it(ids, stops, lengths):
    watch = StopTexts(WORDS, stops)
    read, found = 0, None
    for piece in pieces(ids, lengths):
        after = watch.found_after(piece)
        if after is not None:
            found = read + after
            break
        read += len(piece)
    # A half character is held back until it is whole, or until the end.
    complete = [
        n
        for n in range(1, len(ids) + 1)
        if any(stop in WORDS.decode(ids[:n]) for stop in stops)
        and not WORDS.decode(ids[:n]).endswith("\ufffd")
    ]
    assert found == (complete[0] if complete else None)
