"""A model's chat template, as Hugging Face runs it: messages in, one text out.

A template comes with a model from anywhere: it must not reach more than its messages. Texts in
messages that spell a control token are fenced, so that the encoder of the result can tell them
from those that the template wrote.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from artangram.core.errors import BadInput
from artangram.models.tokenizer import ASSISTANT, TOOL, ChatInput, Message

CONFIG_NAME, TEMPLATE_NAME = "tokenizer_config.json", "chat_template.jinja"
START, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Of a model without a template."""
OPEN_FENCE, CLOSE_FENCE = "\ue0f0", "\ue0f1"
"""Around text that spells a control token; private characters, which no tokenizer needs."""
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")


class ChatTemplate:
    """See the module. `names` are the control tokens that a template may ask for by name."""

    def __init__(self, source: str, names: Mapping[str, str], *, control: Sequence[str]) -> None:
        from jinja2 import TemplateError, TemplateSyntaxError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _generation_blocks()],
        )
        environment.filters["tojson"] = _json
        environment.globals |= {
            "raise_exception": refuse,
            "strftime_now": lambda form: datetime.now(UTC).strftime(form),
        }
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise BadInput("chat_template", str(error), "save the tokenizer again") from error
        self.source = source
        self.writes_arguments_as_text = False
        """It expects the arguments of calls as JSON, not as an object."""
        self._names = dict(names)
        spelled = sorted(filter(None, control), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, spelled)) or r"(?!)")

    def written(self, chat: ChatInput, *, is_open: bool) -> str:
        """The conversation; `is_open` begins the model's reply. Raises `BadInput`."""
        from jinja2 import TemplateError

        try:
            return self._template.render(
                **self._names,
                **chat.options,
                messages=[self._message(message) for message in chat.messages],
                tools=[dict(tool) for tool in chat.tools] or None,
                documents=None,
                add_generation_prompt=is_open,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            roles = ", ".join(message.role for message in chat.messages)
            problem = f"the chat template refuses {roles}: {error}"
            raise BadInput("messages", problem, "send what the template knows") from error

    def _message(self, message: Message) -> dict[str, Any]:
        found: dict[str, Any] = {"role": message.role, "content": self._fenced(message.content)}
        if message.calls and message.role == ASSISTANT:
            found["tool_calls"] = [
                {
                    "id": _short_id(call.id),
                    "type": "function",
                    "function": {"name": call.name, "arguments": self._arguments(call.arguments)},
                }
                for call in message.calls
            ]
        if message.reasoning:
            thought = self._fenced(message.reasoning)
            found |= {"reasoning_content": thought, "thinking": thought}
        if message.role == TOOL:
            found["tool_call_id"] = _short_id(message.call_id)
            if message.name:
                found["name"] = message.name
        return found

    def _arguments(self, text: str) -> object:
        fenced = self._fenced(text)
        if self.writes_arguments_as_text:
            return fenced
        try:
            return json.loads(fenced)
        except ValueError:
            return fenced

    def _fenced(self, text: str) -> str:
        plain = text.replace(OPEN_FENCE, "").replace(CLOSE_FENCE, "")
        return self._control.sub(lambda found: f"{OPEN_FENCE}{found[0]}{CLOSE_FENCE}", plain)


def template_source(directory: Path) -> tuple[str, dict[str, str]]:
    """The template of a model's directory, or nothing, and the names of its control tokens."""
    config = read_json(directory / CONFIG_NAME)
    beside = directory / TEMPLATE_NAME
    found = beside.read_text() if beside.exists() else config.get("chat_template") or ""
    if isinstance(found, list):
        named = {one["name"]: one["template"] for one in found}
        found = named.get("default", "")
    tokens = {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in config.items()
        if name in ("bos_token", "eos_token", "pad_token", "unk_token") and value
    }
    return found, tokens


def read_json(path: Path) -> dict[str, Any]:
    """The object of a file, or an empty one. Raises `BadInput`."""
    try:
        content = path.read_bytes() if path.exists() else b"{}"
        return msgspec.json.decode(content, type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(str(path), str(error), "save the model again") from error


def _json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # As transformers has it: Jinja's own escapes what HTML knows.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _short_id(name: str) -> str:
    """Mistral's template takes nine letters and digits; others do not write ids."""
    return name if _SHORT_ID.fullmatch(name) else sha256(name.encode()).hexdigest()[:9]


def _generation_blocks() -> Any:
    """`{% generation %}`, which marks what the model says in templates made for training."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class GenerationBlock(Extension):
        tags = {"generation"}  # noqa: RUF012 - Jinja's own interface.

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return GenerationBlock
