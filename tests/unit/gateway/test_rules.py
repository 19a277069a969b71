"""How the callers of a session may sample."""

import pytest

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import Sampling
from artangram.gateway.rules import SamplingRules

ASKED = Sampling(max_tokens=100, temperature=0.5, top_p=0.9)


def test_callers_sample_as_they_like_where_nothing_is_trained():
    assert SamplingRules().applied(ASKED) == ASKED


def test_the_runs_own_settings_replace_what_a_request_says():
    found = SamplingRules(temperature=0.7, is_enforced=True, trains=True).applied(ASKED)
    assert (found.temperature, found.top_p, found.max_tokens) == (0.7, 1.0, 100)


def test_an_answer_has_no_more_tokens_than_the_task_allows():
    assert SamplingRules(most_tokens=8).applied(ASKED).max_tokens == 8
    assert SamplingRules(most_tokens=800).applied(ASKED).max_tokens == 100


SHAPED = {
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 1.0,
    "frequency_penalty": -1.0,
    "repetition_penalty": 1.1,
    "logit_bias": {3: 1.0},
    "temperature": 0,
}


@pytest.mark.parametrize("field", SHAPED)
def test_what_training_could_not_score_is_refused_by_its_name(field):
    asked = Sampling(max_tokens=1, **{field: SHAPED[field]})
    with pytest.raises(BadInput, match=rf"{field}: .*cannot be trained on.*sampling: run"):
        SamplingRules(trains=True).applied(asked)
    enforced = SamplingRules(trains=True, is_enforced=True).applied(asked)
    assert enforced == Sampling(max_tokens=1)


def test_what_training_can_score_stays_as_it_was_asked_for():
    asked = Sampling(max_tokens=1, temperature=0.5, seed=3, top_logprobs=2)
    assert SamplingRules(trains=True).applied(asked) == asked


def test_the_form_of_an_answer_is_never_dropped_in_silence():
    asked = Sampling(max_tokens=1, json_schema="{}")
    for rules in (SamplingRules(trains=True), SamplingRules(trains=True, is_enforced=True)):
        with pytest.raises(BadInput, match="response_format: cannot be trained on"):
            rules.applied(asked)
    assert SamplingRules().applied(asked) == asked
