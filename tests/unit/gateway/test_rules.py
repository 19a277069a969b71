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


@pytest.mark.parametrize(
    ("asked", "field"),
    [(ASKED, "top_p"), (Sampling(max_tokens=1, temperature=0.0), "temperature")],
)
def test_what_training_could_not_score_is_refused_by_its_name(asked, field):
    with pytest.raises(BadInput, match=rf"{field}: 0.*cannot be trained on.*sampling: run"):
        SamplingRules(trains=True).applied(asked)
    assert SamplingRules(trains=True).applied(Sampling(max_tokens=1, temperature=0.5))
