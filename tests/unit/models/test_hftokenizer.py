"""A tokenizer of Hugging Face keeps our contract."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizer_support import a_file

from artangram.core.errors import BadInput
from artangram.models import HfTokenizer, Message, load_tokenizer
from artangram.models.tokenizer import ChatInput

texts = st.text(alphabet="ab c<|im_end>\n", max_size=12) | st.just("a<|im_end|>b")


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


def test_messages_are_framed_as_in_chatml(tokenizer: HfTokenizer):
    chat = ChatInput([Message("user", "hi"), Message("assistant", "yo"), Message("user", "so")])
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
    expected = f"{text}<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.spelled(tokenizer.first(chat)) == expected


@given(text=texts, later=texts)
@module_fixtures
def test_a_history_grows_by_a_suffix(tokenizer: HfTokenizer, text: str, later: str):
    said, new = [Message("user", text), Message("assistant", "yo")], [Message("user", later)]
    first = tokenizer.first(ChatInput(said[:1]))
    sampled = (*tokenizer.encode("yo"), tokenizer.eos_id)
    rest = tokenizer.after(ChatInput(new), reply=said[1], last_id=tokenizer.eos_id)
    assert first + sampled + rest == tokenizer.first(ChatInput([*said, *new]))


def test_a_file_without_the_markers_is_refused(tmp_path: Path):
    for missing, other in (("<|im_end|>", "<|im_start|>"), ("<|im_start|>", "<|im_end|>")):
        with pytest.raises(BadInput, match=re.escape(f"the vocabulary has no {missing}")):
            HfTokenizer(a_file(tmp_path, markers=[other, "</s>"]))


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
        tokenizer.first(ChatInput([Message("pope", "hello")]))
