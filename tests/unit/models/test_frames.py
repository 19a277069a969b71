"""Conversations are framed as the model's own template frames them; transformers is the judge."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizer_support import a_file

from artangram.core.errors import BadInput
from artangram.models import HfTokenizer, Message

transformers = pytest.importorskip("transformers")

MARKERS = ["<s>", "</s>", "<|a|>", "<|b|>", "<|c|>"]

# In the manners of models that are around: how they begin, part and end messages.
HEADED = """{{ bos_token }}{% for m in messages %}<|a|>{{ m.role }}<|b|>

{{ m.content | trim }}<|c|>{% endfor %}{% if add_generation_prompt %}<|a|>assistant<|b|>

{% endif %}"""
TURNS = """{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('take turns') }}{% endif %}
{{- '<|a|>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<|b|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|a|>model\\n' }}{% endif %}"""
INSTRUCTIONS = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}
{%- else %}{{ raise_exception(m.role) }}{% endif %}{% endfor %}"""
TOOLS = """{% if messages[0].role != 'system' %}<|a|>system
You help.<|b|>
{% endif %}{% for m in messages %}{% if m.role == 'tool' %}<|a|>user
<answer>
{{ m.content }}
</answer><|b|>
{% else %}<|a|>{{ m.role }}
{{ m.content }}<|b|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|a|>assistant
{% endif %}"""
BARE = """{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}<|a|>{{ m.content }}
{%- elif m.role == 'assistant' %}<|b|>{{ m.content }}{{ eos_token }}
{%- else %}<|c|>{{ m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|b|>{% endif %}"""

KNOW_TOOLS = {"headed": HEADED, "tools": TOOLS, "bare": BARE}
ALL = {**KNOW_TOOLS, "turns": TURNS}

said = st.text(alphabet="ab>|é ", min_size=1, max_size=6).map(str.strip).filter(bool)


def both(path: Path, template: str):
    a_file(path, markers=MARKERS)
    names = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    config = {**names, "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    judge = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(path / "tokenizer.json"),
        bos_token="<s>",
        eos_token="</s>",
        chat_template=template,
    )
    return HfTokenizer(path), judge


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return {name: both(tmp_path_factory.mktemp(name), template) for name, template in ALL.items()}


def judged(judge, messages: list[Message]) -> tuple[int, ...]:
    plain = [{"role": m.role, "content": m.content} for m in messages]
    text = judge.apply_chat_template(plain, add_generation_prompt=True, tokenize=False)
    return tuple(judge.encode(text, add_special_tokens=False))


def taking_turns(texts: list[str], *, others: str = "user") -> list[Message]:
    """The user, the model, somebody, the model, ..., somebody."""
    roles = ["user", *(role for _ in texts[2::2] for role in ("assistant", others))]
    return [Message(role, text) for role, text in zip(roles, texts, strict=False)]


settled = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)


@pytest.mark.parametrize("name", ALL)
@given(texts=st.lists(said, min_size=1, max_size=5))
@settled
def test_turns_are_framed_as_the_template_does(pairs, name: str, texts: list[str]):
    ours, judge = pairs[name]
    messages = taking_turns(texts[: len(texts) - (len(texts) + 1) % 2])
    assert ours.render(messages) + ours.opening() == judged(judge, messages)


@pytest.mark.parametrize("name", KNOW_TOOLS)
@given(system=said, texts=st.lists(said, min_size=3, max_size=5))
@settled
def test_so_are_systems_and_tools(pairs, name: str, system: str, texts: list[str]):
    ours, judge = pairs[name]
    messages = taking_turns(texts[: len(texts) - (len(texts) + 1) % 2], others="tool")
    messages = [Message("system", system), *messages]
    assert ours.render(messages) + ours.opening() == judged(judge, messages)


@pytest.mark.parametrize("name", ALL)
def test_a_reply_ends_with_the_token_that_the_template_ends_it_with(pairs, name: str):
    ours, judge = pairs[name]
    whole = judged(judge, taking_turns(["a", "b", "c"]))
    reply = (*ours.opening(), *ours.encode("b"), ours.eos_id)
    assert any(whole[at : at + len(reply)] == reply for at in range(len(whole)))
    assert ours.render([Message("assistant", "b")], begins=False) == reply


def test_a_role_that_the_template_refuses_speaks_as_the_user(pairs):
    ours, _ = pairs["turns"]
    for role in ("system", "tool"):
        assert ours.render([Message(role, "x")]) == ours.render([Message("user", "x")])


def test_a_template_that_opens_no_reply_is_understood(tmp_path: Path):
    ours, judge = both(tmp_path, INSTRUCTIONS)
    # The space before a reply is the model's own to say, as it was when it was sampled.
    assert ours.decode(ours.opening()) == " [/INST]"
    assert ours.render([Message("user", "a")]) + ours.opening() == judged(
        judge, [Message("user", "a")]
    )


def test_a_template_beside_the_config_counts(tmp_path: Path):
    ours, _ = both(tmp_path, TURNS)
    (tmp_path / "chat_template.jinja").write_text(HEADED)
    beside = HfTokenizer(tmp_path)
    assert len(beside.opening()) == len("aassistantb\n\n") != len(ours.opening())


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ messages[0].content }}", "leaves out the assistant's message"),
        ("{{ raise_exception('never') }}", "never"),
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "is no control token"),
        ("{% for m in", "unexpected"),
        ("{{ ''.__class__.__mro__ }}{{ messages[0]._x.y }}", "unsafe|undefined|leaves out"),
    ],
)
def test_what_is_no_template_for_us_is_refused(tmp_path: Path, template: str, problem: str):
    with pytest.raises(BadInput, match=problem):
        both(tmp_path, template)
