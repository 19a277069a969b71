"""Errors over HTTP arrive with the fields that they left with."""

import msgspec

from artangram.core.errors import BadInput
from artangram.orchestrator.errors import ErrorRecord, problem_of, raised


def travelled(error: Exception) -> Exception:
    body = msgspec.json.encode(problem_of(error)[0])
    return raised(msgspec.json.decode(body, type=ErrorRecord))


def test_bad_input_is_not_rebuilt_from_its_sentence() -> None:
    back = travelled(BadInput("needs: cpu", "is: wrong; twice", "mend: it; now"))
    assert isinstance(back, BadInput)
    assert (back.field, back.problem, back.fix) == (
        "needs: cpu",
        "is: wrong; twice",
        "mend: it; now",
    )


def test_a_value_error_that_reads_like_bad_input_stays_one() -> None:
    assert type(travelled(ValueError("field: problem; fix"))) is ValueError
