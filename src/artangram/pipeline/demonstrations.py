"""Conversations that a model is to imitate, read from files.

- A line `{"messages": [...], "tools": [...]}` is a conversation as OpenAI's interface writes it;
  what the assistant says in it is imitated.
- A line of a run's `transcripts.jsonl.gz` is an attempt; the very tokens that were sampled are
  imitated, so it needs a model with the same tokenizer.
- A line with a reward below the least wanted one is left out.
"""

import gzip
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.models.hftokenizer import HfTokenizer
from artangram.models.tokenizer import ASSISTANT, CalledTool, ChatInput, Message, Tokenizer
from artangram.pipeline.transcripts import Utterance
from artangram.train.warmup import Demonstration

_GZIP = b"\x1f\x8b"
_FIX = 'write {"messages": [...]} in each line, or name the transcripts.jsonl.gz of a run'


class _Called(Struct):
    function: dict[str, Any]
    id: str = ""


class _Said(Struct):
    role: str
    content: str | None = None
    tool_calls: list[_Called] = []
    reasoning_content: str | None = None
    tool_call_id: str = ""
    name: str = ""

    @property
    def message(self) -> Message:
        calls = [
            CalledTool(
                name=str(call.function.get("name", "")),
                arguments=_as_json(call.function.get("arguments", "{}")),
                id=call.id,
            )
            for call in self.tool_calls
        ]
        return Message(
            self.role,
            self.content or "",
            calls=tuple(calls),
            reasoning=self.reasoning_content or "",
            call_id=self.tool_call_id,
            name=self.name,
        )


class _Line(Struct):
    messages: list[_Said] = []
    tools: list[dict[str, Any]] = []
    conversations: list[list[Utterance]] = []
    reward: float | None = None


class DemonstrationSet(Struct, frozen=True, kw_only=True):
    """What the files hold, and what of them is of no use."""

    demonstrations: list[Demonstration]
    num_too_long: int = 0
    num_low_reward: int = 0

    def shuffled(self, seed: int) -> Iterator[Demonstration]:
        """All of them in another order each time, without end."""
        chance = random.Random(seed)
        order = list(self.demonstrations)
        while True:
            chance.shuffle(order)
            yield from order


def read_demonstrations(
    paths: Sequence[Path], tokenizer: Tokenizer, *, max_context: int, min_reward: float
) -> DemonstrationSet:
    """All that these files show. Raises `BadInput` if that is nothing."""
    found: list[Demonstration] = []
    rewards: list[float] = []
    num_too_long = 0
    for path in paths:
        for number, line in enumerate(_lines(path), start=1):
            one = _line(line, f"{path}:{number}")
            if one.reward is not None and one.reward < min_reward:
                rewards.append(one.reward)
                continue
            try:
                shown = list(_shown(one, tokenizer))
            except BadInput as error:
                raise error.within(f"{path}:{number}") from error
            fitting = [show for show in shown if len(show.token_ids) <= max_context]
            num_too_long += len(shown) - len(fitting)
            found += [show for show in fitting if show.imitated]
    if not found:
        raise _nothing(paths, rewards, min_reward=min_reward, max_context=max_context)
    return DemonstrationSet(
        demonstrations=found, num_too_long=num_too_long, num_low_reward=len(rewards)
    )


def conversation(
    messages: Sequence[Message], tokenizer: Tokenizer, *, tools: Sequence[Any] = ()
) -> Demonstration:
    """A conversation as a session would have recorded it; what the assistant says is imitated."""
    tokens: list[int] = []
    imitated: list[int] = []
    pending: list[Message] = []
    before: Message | None = None
    for number, message in enumerate(messages):
        if message.role != ASSISTANT:
            pending.append(message)
            continue
        if not pending:
            fix = "let each reply follow a message of the user or of a tool"
            raise BadInput("messages", f"{ASSISTANT} speaks without having been asked", fix)
        chat = ChatInput(pending, tools)
        if before is None:
            tokens += tokenizer.first(chat)
        else:
            tokens += tokenizer.after(chat, reply=before, last_id=tokens[-1])
        whole = ChatInput(messages[: number + 1], tools)
        reply = _reply(message, tokenizer, after=tokens, whole=whole)
        imitated += range(len(tokens), len(tokens) + len(reply))
        tokens += reply
        before, pending = message, []
    return Demonstration(tuple(tokens), tuple(imitated))


def _reply(
    message: Message, tokenizer: Tokenizer, *, after: Sequence[int], whole: ChatInput
) -> list[int]:
    """The tokens of a reply; calls and reasoning are written as the template writes them."""
    if not (message.calls or message.reasoning):
        return [*tokenizer.encode(message.content), tokenizer.eos_id]
    if not isinstance(tokenizer, HfTokenizer):
        fix = "take a model with a chat template"
        raise BadInput("messages", "this tokenizer writes no calls and no reasoning", fix)
    written = tokenizer.whole(whole, is_open=False)
    rest = list(written[len(after) :])
    end = next((n for n, token in enumerate(rest) if token in tokenizer.end_ids), None)
    if written[: len(after)] != tuple(after) or end is None:
        fix = "leave out its reasoning, or split the conversation before this reply"
        raise BadInput("messages", "the template writes this reply in another place", fix)
    return rest[: end + 1]


def _shown(line: _Line, tokenizer: Tokenizer) -> Iterator[Demonstration]:
    if line.messages:
        messages = [said.message for said in line.messages]
        yield conversation(messages, tokenizer, tools=line.tools)
    for attempt in line.conversations:
        yield _attempted(attempt, tokenizer)


def _attempted(attempt: Sequence[Utterance], tokenizer: Tokenizer) -> Demonstration:
    tokens: list[int] = []
    imitated: list[int] = []
    for part in attempt:
        if not part.token_ids or max(part.token_ids) >= tokenizer.vocab_size:
            problem = "has no tokens of this model's tokenizer"
            raise BadInput("conversations", problem, "take the model that the run trained")
        if tokenizer.decode(part.token_ids) != part.text:
            problem = "has tokens that mean another text to this model"
            raise BadInput("conversations", problem, "take the model that the run trained")
        if part.is_sampled:
            imitated += range(len(tokens), len(tokens) + len(part.token_ids))
        tokens += part.token_ids
    return Demonstration(tuple(tokens), tuple(imitated))


def _lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise BadInput(str(path), problem, "name a file with conversations") from error
    return [line for line in data.splitlines() if line.strip()]


def _line(line: bytes, place: str) -> _Line:
    try:
        found = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise BadInput(place, str(error), _FIX) from error
    if not (found.messages or found.conversations):
        raise BadInput(place, "has no messages", _FIX)
    return found


def _nothing(
    paths: Sequence[Path], rewards: Sequence[float], *, min_reward: float, max_context: int
) -> BadInput:
    named = ", ".join(map(str, paths))
    if rewards:
        problem = f"the best reward of {len(rewards)} attempts is {max(rewards):g}"
        return BadInput(named, problem, f"say a --min-reward below {min_reward:g}")
    fix = f"give conversations of at most {max_context} tokens in which the assistant speaks"
    return BadInput(named, "holds nothing to imitate", fix)


def _as_json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
