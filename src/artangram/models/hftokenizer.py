"""A `tokenizers` file of Hugging Face behind our contract, with the model's own chat template.

- A first prompt is the whole rendering. What comes after a reply is cut out of a rendering that
  has a mark in the place of the reply, so the tokens of the reply itself are never made again.
- The template is tested when it is loaded (`selftest`): one whose whole rendering of a conversation
  differs from the prompts that grow is refused.
- Without a template, messages are framed as in ChatML.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from artangram.core.errors import BadInput
from artangram.models import selftest
from artangram.models.template import (
    CHATML,
    CLOSE_FENCE,
    END,
    OPEN_FENCE,
    START,
    TEMPLATE_NAME,
    ChatTemplate,
    read_json,
    template_source,
)
from artangram.models.tokenizer import (
    ASSISTANT,
    USER,
    CalledTool,
    ChatInput,
    Message,
    refuse_unknown_role,
)

FILE_NAME, GENERATION_NAME = "tokenizer.json", "generation_config.json"
MARK = "said0here"
"""Stands where a reply is."""


class HfTokenizer:
    """See `tokenizer.Tokenizer`."""

    def __init__(self, directory: Path) -> None:
        self._file: Any = _file(directory)
        self._framed: Any = _file(directory)
        # For this one a text that spells a control token is text.
        self._file.encode_special_tokens = True
        self._control = {
            number: str(token.content)
            for number, token in self._file.get_added_tokens_decoder().items()
            if token.special
        }
        self.vocab_size = int(self._file.get_vocab_size())
        source, names = template_source(directory)
        if not source:
            source = CHATML
            self._refuse_without_markers()
        self.template = ChatTemplate(source, names, control=list(self._control.values()))
        closing = self._after_mark([], is_open=False)
        self._has_closing = bool(closing)
        self.eos_id = self._end_of_reply(closing or self._after_mark([Message(USER, "x")]))
        self.end_ids = tuple(dict.fromkeys([self.eos_id, *self._known_ends(directory, names)]))
        self._closing_ids = {*self.end_ids, self._after_mark([Message(USER, "x")])[0]}
        selftest.refuse_inexact(self)
        self.tools_problem = selftest.problem_with_tools(self)
        """Why conversations with tools cannot use the template; empty if they can."""
        self.writes_tools = self.tools_problem != selftest.NO_TOOLS

    def __repr__(self) -> str:
        return f"<HfTokenizer of {self.vocab_size}>"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._file.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._file.decode(list(token_ids), skip_special_tokens=True))

    def tokens_of(self, word: str) -> tuple[int, ...]:
        """The one token that is spelled like this, or none."""
        found = self._file.token_to_id(word)
        return () if found is None else (int(found),)

    def spelled(self, token_ids: Sequence[int]) -> str:
        """The text, with control tokens as they are spelled."""
        return str(self._file.decode(list(token_ids), skip_special_tokens=False))

    def first(self, chat: ChatInput) -> tuple[int, ...]:
        return self.whole(chat, is_open=True)

    def after(self, chat: ChatInput, *, reply: Message, last_id: int | None) -> tuple[int, ...]:
        end, *rest = self._after_mark(
            chat.messages, reply=reply, tools=chat.tools, options=chat.options
        )
        # Some models end a reply with the token that begins the next message, each with its own.
        is_closed = last_id in self.end_ids and (self._has_closing or last_id == end)
        return tuple(rest) if is_closed or last_id is None else (end, *rest)

    def whole(self, chat: ChatInput, *, is_open: bool) -> tuple[int, ...]:
        """The whole conversation, all of it rendered."""
        for message in chat.messages:
            refuse_unknown_role(message.role)
        return self._encoded(self.template.written(chat, is_open=is_open))

    def opening_of_call(self, tools: Sequence[Any], *, name: str = "") -> tuple[int, ...]:
        """What a reply begins with that calls this tool, or any. Raises `BadInput`."""
        argument = f'{{"{MARK}": 1}}'
        call = CalledTool(name=name or MARK, arguments="{}" if not name else argument, id="call")
        text = self._before_mark(Message(ASSISTANT, "", calls=(call,)), tools)
        if name:
            # The object of the arguments, or the tag of the first one, is the model's to write. So
            # is the space before it, which belongs to the same token.
            begins = text.rfind("{") if "{" in text else text.rfind("<")
            text = text[: max(begins, 0)].rstrip(" ")
        if not text:
            problem = "how the chat template begins a call is not known here"
            raise BadInput("tool_choice", problem, "use auto")
        return self._encoded(text)

    def opening_of_words(self) -> tuple[int, ...]:
        """What a reply begins with that has words and no thought."""
        return self._encoded(self._before_mark(Message(ASSISTANT, MARK), ()))

    def _before_mark(self, said: Message, tools: Sequence[Any]) -> str:
        asked = Message(USER, "x")
        opened = self.template.written(ChatInput([asked], tools), is_open=True)
        whole = self.template.written(ChatInput([asked, said], tools), is_open=False)
        text, mark, _ = whole[len(opened) :].partition(MARK)
        if not mark or not whole.startswith(opened):
            problem = "the chat template begins a reply in another way than its prompt says"
            raise BadInput("chat_template", problem, "let the model choose how it answers")
        return text

    def _after_mark(
        self,
        new: Sequence[Message],
        *,
        reply: Message | None = None,
        is_open: bool = True,
        tools: Sequence[Any] = (),
        options: Any = None,
    ) -> tuple[int, ...]:
        """What the template writes after a reply, from the token on that ends it."""
        for message in new:
            refuse_unknown_role(message.role)
        calls = () if reply is None else reply.calls
        marked = [
            CalledTool(name=call.name, arguments=f'{{"a": "{MARK}"}}', id=call.id) for call in calls
        ]
        said = Message(ASSISTANT, "" if marked else MARK, calls=tuple(marked))
        chat = ChatInput([Message(USER, "x"), said, *new], tools, options or {})
        _, mark, rest = self._split(self.template.written(chat, is_open=is_open), new)
        if not mark:
            problem = "leaves out the assistant's message"
            raise BadInput("chat_template", problem, "take one that writes every message")
        found = self._encoded(rest)
        if not marked:
            return found
        place = next((n for n, token in enumerate(found) if token in self._closing_ids), None)
        if place is None:
            problem = "a call of a tool ends with no end-of-sequence token of the model"
            fix = f"put the token that ends it into {GENERATION_NAME}"
            raise BadInput("chat_template", problem, fix)
        return found[place:]

    def _split(self, text: str, new: Sequence[Message]) -> tuple[str, str, str]:
        """At the last mark that no message has said."""
        said = sum(message.content.count(MARK) for message in new)
        parts = text.split(MARK)
        place = len(parts) - 1 - said
        if place < 1:
            return text, "", ""
        return MARK.join(parts[:place]), MARK, MARK.join(parts[place:])

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(token for piece in self._pieces(text) for token in piece)

    def _pieces(self, text: str) -> Iterator[Sequence[int]]:
        for number, part in enumerate(text.split(OPEN_FENCE)):
            fenced, _, rest = part.partition(CLOSE_FENCE) if number else ("", "", part)
            yield self.encode(fenced)
            yield self._framed.encode(rest, add_special_tokens=False).ids

    def _end_of_reply(self, after: Sequence[int]) -> int:
        if not after or after[0] not in self._control:
            problem = f"{self.spelled(after[:1])!r}, which ends a reply, is no control token"
            fix = "give the model a chat template that ends replies with one"
            raise BadInput(FILE_NAME, problem, fix)
        return after[0]

    def _known_ends(self, directory: Path, names: dict[str, str]) -> list[int]:
        """The tokens that end a reply, as the model's files say."""
        path = directory / GENERATION_NAME
        found = read_json(path).get("eos_token_id", [])
        ends = found if isinstance(found, list) else [found]
        if strange := [end for end in ends if end is not None and end not in self._control]:
            problem = f"eos_token_id {strange[0]!r} is no control token of the tokenizer"
            raise BadInput(str(path), problem, "take both files from the same model")
        if not path.exists() and names.get("eos_token") in self._control.values():
            ends.append(self._file.token_to_id(names["eos_token"]))
        return [end for end in ends if end is not None]

    def _refuse_without_markers(self) -> None:
        for marker in (START, END):
            if marker not in self._control.values():
                problem = f"is missing, and the vocabulary has no {marker}"
                fix = "write one that frames messages as the model knows"
                raise BadInput(TEMPLATE_NAME, problem, fix)


def _file(directory: Path) -> Any:
    from tokenizers import Tokenizer as File  # The client does without it.

    path = directory / FILE_NAME
    if not path.exists():
        raise BadInput(str(path), "does not exist", "name a directory with a tokenizer")
    try:
        return File.from_file(str(path))
    except Exception as error:
        raise BadInput(str(path), str(error), "save the tokenizer again") from error
