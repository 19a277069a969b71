"""A `tokenizers` file of Hugging Face behind our contract.

Messages are framed as the model's chat template does (see `frames`), as in ChatML if it has none.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artangram.core.errors import BadInput
from artangram.models.frames import frames_of
from artangram.models.tokenizer import ASSISTANT, ROLES, Message, refuse_unknown_role

FILE_NAME = "tokenizer.json"


class HfTokenizer:
    """See `tokenizer.Tokenizer`."""

    def __init__(self, directory: Path) -> None:
        from tokenizers import Tokenizer as File  # The client does without it.

        path = directory / FILE_NAME
        if not path.exists():
            raise BadInput(str(path), "does not exist", "name a directory with a tokenizer")
        try:
            self._file: Any = File.from_file(str(path))
        except Exception as error:
            raise BadInput(str(path), str(error), "save the tokenizer again") from error
        frames = frames_of(directory, first_token=self._first)
        self._begins = {role: self.encode(frames.begins[role]) for role in ROLES}
        self._headers = {role: self.encode(frames.headers[role]) for role in ROLES}
        self._ends = {role: self.encode(frames.ends[role]) for role in ROLES}
        # From here on a text that spells a control token is text.
        self._file.encode_special_tokens = True
        self.eos_id = self._end_of_reply(frames.ends[ASSISTANT])
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
            refuse_unknown_role(message.role)
            first = begins and not found
            found += (self._begins if first else self._headers)[message.role]
            found += self.encode(message.content)
            found += self._ends[message.role]
        return tuple(found)

    def opening(self) -> tuple[int, ...]:
        return self._headers[ASSISTANT]

    def _first(self, text: str) -> str:
        tokens = self.encode(text)
        return str(self._file.id_to_token(tokens[0])) if tokens else ""

    def _end_of_reply(self, text: str) -> int:
        found = self._ends[ASSISTANT]
        if len(found) != 1 or self.encode(text) == found:
            problem = f"{text!r}, which ends a reply, is no control token"
            fix = "give the model a chat template that ends replies with one"
            raise BadInput(FILE_NAME, problem, fix)
        return found[0]
