"""A tokenizer of Hugging Face keeps our contract."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizer_support import a_file

from artangram.core.errors import BadInput
from artangram.models import ROLES, HfTokenizer, Message, load_tokenizer

texts = st.text(alphabet="ab c<|im_end>\n", max_size=12) | st.just("a<|im_end|>b")
messages = st.lists(st.builds(Message, st.sampled_from(ROLES), texts), max_size=3)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer that merges nothing, with ChatML's markers."""
    return a_file(tmp_path_factory.mktemp("hf"), markers=["<|im_start|>", "<|im_end|>"])


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> HfTokenizer:
    found = load_tokenizer(directory)
    assert isinstance(found, HfTokenizer)
    return found


module_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(text=texts)
@module_fixtures
def test_a_text_comes_back_and_forges_no_control_token(tokenizer: HfTokenizer, text: str):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_id not in tokenizer.encode(text)


@given(before=messages, after=messages)
@module_fixtures
def test_a_history_grows_by_a_suffix(
    tokenizer: HfTokenizer, before: list[Message], after: list[Message]
):
    rendered = tokenizer.render(before) + tokenizer.render(after, begins=not before)
    assert tokenizer.render(before + after) == rendered


def test_messages_are_framed_as_in_chatml(tokenizer: HfTokenizer):
    rendered = tokenizer.render([Message("user", "hi"), Message("assistant", "yo")])
    start = tokenizer.render([Message("user", "")])[0]
    marked = {start: "<|im_start|>", tokenizer.eos_id: "<|im_end|>"}
    text = "".join(marked.get(token) or tokenizer.decode([token]) for token in rendered)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>"
    sampled = (*tokenizer.encode("yo"), tokenizer.eos_id)
    assert rendered[-len(sampled) - len(tokenizer.opening()) :] == tokenizer.opening() + sampled


def test_a_file_without_the_markers_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"'<\|im_end\|>', which ends a reply, is no control token"):
        HfTokenizer(a_file(tmp_path, markers=["<|im_start|>", "</s>"]))
    with pytest.raises(BadInput, match=r"the vocabulary has no <\|im_start\|>"):
        HfTokenizer(a_file(tmp_path, markers=["<|im_end|>", "</s>"]))


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="name a directory with a tokenizer"):
        HfTokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": {"type": "none"}}'])
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_an_unknown_role_is_refused(tokenizer: HfTokenizer):
    with pytest.raises(BadInput, match="use one of system, user, assistant, tool"):
        tokenizer.render([Message("pope", "hello")])
