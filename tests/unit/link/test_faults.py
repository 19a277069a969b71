"""Errors travel as fields and come back as themselves."""

import errno

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.link import FAULTS, Fault, PeerFailed, worded

text = st.text(st.characters(exclude_categories=["Cs"]))


def travelled(error: Exception) -> Exception:
    body = msgspec.msgpack.encode(FAULTS.fault(error))
    return FAULTS.raised(msgspec.msgpack.decode(body, type=Fault))


@given(text, text, text)
def test_bad_input_keeps_its_fields(field: str, problem: str, fix: str) -> None:
    back = travelled(BadInput(field, problem, fix))
    assert isinstance(back, BadInput)
    assert (back.field, back.problem, back.fix) == (field, problem, fix)


@given(
    st.sampled_from([ValueError, CallFailed, InfraFailed, TimeoutError, MemoryError, PeerFailed]),
    text,
)
def test_worded_errors_keep_type_and_words(kind: type[Exception], message: str) -> None:
    back = travelled(kind(message))
    assert (type(back), str(back)) == (kind, message)


@given(st.sampled_from(sorted(errno.errorcode)), text, st.none() | text, text)
def test_an_os_error_is_made_of_its_number(
    number: int, problem: str, path: str | None, second: str
) -> None:
    other = None if path is None else second
    error = OSError(number, problem, path, None, other)
    back = travelled(error)
    assert isinstance(back, OSError)
    assert type(back) is type(error)
    assert (back.errno, back.filename, back.filename2) == (number, path, other)
    assert str(back) == str(error) or not problem


@given(st.text())
def test_no_text_stops_an_error_on_its_way(message: str) -> None:
    assert isinstance(travelled(ValueError(message)), ValueError)


def test_an_os_error_without_a_number_keeps_its_words() -> None:
    assert str(travelled(OSError("no way"))) == "no way"


def test_a_subclass_travels_as_its_nearest_known_ancestor() -> None:
    class OutOfShape(BadInput):
        pass

    assert type(travelled(OutOfShape("a", "b", "c"))) is BadInput
    assert type(travelled(UnicodeError("a"))) is ValueError


def test_an_unknown_error_says_what_it_was() -> None:
    back = travelled(ZeroDivisionError("by zero"))
    assert (type(back), str(back)) == (PeerFailed, "ZeroDivisionError: by zero")


def test_a_registry_grows_without_changing_the_old_one() -> None:
    grown = FAULTS.with_kinds(worded("zero", ZeroDivisionError))
    fault = grown.fault(ZeroDivisionError("by zero"))
    assert type(grown.raised(fault)) is ZeroDivisionError
    assert type(FAULTS.raised(fault)) is PeerFailed


def test_fields_that_fit_no_error_are_told() -> None:
    back = FAULTS.raised(Fault("input", {"field": "a"}))
    assert isinstance(back, PeerFailed)


def test_a_tag_belongs_to_one_type() -> None:
    with pytest.raises(AssertionError):
        FAULTS.with_kinds(worded("value", ZeroDivisionError))
