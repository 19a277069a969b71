"""A `tokenizers` file of Hugging Face behind our contract.

Messages are framed as in ChatML, with the file's own markers. Templates that other models ship may
rewrite what was said before, so that a history would not grow by a suffix; we do not run them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artangram.core.errors import BadInput
from artangram.models.tokenizer import ASSISTANT, Message

FILE_NAME = "tokenizer.json"
START, END = "<|im_start|>", "<|im_end|>"


class HfTokenizer:
    """See `tokenizer.Tokenizer`."""

    def __init__(self, directory: Path) -> None:
        from tokenizers import Tokenizer as File  # The client does without it.

        path = directory / FILE_NAME
        if not path.exists():
            raise BadInput(str(path), "does not exist", "name a directory with a tokenizer")
        self._file: Any = File.from_file(str(path))
        # A text that spells a control token is text.
        self._file.encode_special_tokens = True
        self._start = self._control(START)
        self.eos_id = self._control(END)
        self._between = self.encode("\n")
        self.vocab_size = int(self._file.get_vocab_size())

    def __repr__(self) -> str:
        return f"<HfTokenizer of {self.vocab_size}>"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._file.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._file.decode(list(token_ids), skip_special_tokens=True))

    def render(self, messages: Sequence[Message], *, begins: bool = True) -> tuple[int, ...]:
        found: list[int] = []
        for message in messages:
            found += self._frame(message.role, begins=begins and not found)
            found += self.encode(message.content)
            found.append(self.eos_id)
        return tuple(found)

    def opening(self) -> tuple[int, ...]:
        return self._frame(ASSISTANT, begins=False)

    def _frame(self, role: str, *, begins: bool) -> tuple[int, ...]:
        before = () if begins else self._between
        return (*before, self._start, *self.encode(f"{role}\n"))

    def _control(self, text: str) -> int:
        found = self._file.token_to_id(text)
        if found is None:
            fix = "take a model that knows ChatML, or add the marker to its vocabulary"
            raise BadInput(FILE_NAME, f"{text!r} is not in it", fix)
        return int(found)
