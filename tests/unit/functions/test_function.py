"""Marking functions, and what their calls look like on the way."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.core.errors import BadInput
from artangram.functions import Function, FunctionSpec, function, function_of, resolved
from artangram.functions.encoding import is_pickled, packed, unpacked
from integration.functions import subjects


def test_a_function_is_still_a_function() -> None:
    assert subjects.add(1, b=2) == 3
    assert subjects.add.__name__ == "add"


def test_it_is_named_by_where_it_is_found() -> None:
    assert subjects.add.spec == FunctionSpec(
        name="integration.functions.subjects:add", target="integration.functions.subjects:add"
    )
    assert resolved(subjects.add.spec.target) is subjects.add


def test_plain_code_becomes_a_function_and_a_function_stays_what_it_is() -> None:
    assert function_of(math.gcd).spec.target == "math:gcd"
    assert function_of(subjects.add) is subjects.add


def test_its_arguments_and_answer_come_through() -> None:
    args, kwargs = unpacked(subjects.add.encode(1, b=2))
    assert (args, kwargs) == ([1], {"b": 2})
    assert subjects.add.decode(packed(3)) == 3


def test_on_a_platform_arguments_have_names() -> None:
    remote = Function(subjects.add.code, FunctionSpec(name="a", target="a:a", url="http://x/"))
    assert msgspec.json.decode(remote.encode(1, b=2)) == {"a": 1, "b": 2}
    assert remote.decode(b"3") == 3


def inner() -> Callable[[], None]:
    def nested() -> None:
        return None

    return nested


def in_script() -> None:
    return None


in_script.__module__ = "__main__"


async def asynchronous() -> None:
    return None


def variadic(*values: int) -> int:
    return sum(values)


@pytest.mark.parametrize(
    ("code", "options", "says"),
    [
        (lambda: None, {}, "write it as a `def`"),
        (inner(), {}, "move it to the top of a module"),
        (in_script, {}, "move it into a module beside the script"),
        (asynchronous, {}, "make it a plain `def`"),
        (variadic, {"url": "http://x/"}, "give every parameter a name"),
        (math.gcd, {"url": "http://x/"}, "give every parameter a name"),
        (inner(), {"url": "ftp://x/"}, "write https://host/path"),
        (math.sqrt, {"timeout_s": 0}, "more than 0 seconds"),
        (math.sqrt, {"memory_mb": 0}, "at least 1"),
        (math.sqrt, {"authorization": "iam"}, "give its url"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_advice(
    code: Callable[..., Any], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        function(**options)(code)


def test_with_a_url_it_may_be_anywhere() -> None:
    assert function(url="https://host/path")(inner()).spec.url == "https://host/path"


@pytest.mark.parametrize("target", ["no.such.module:f", "math:no_such", "math:", ":f"])
def test_a_target_that_is_not_there_is_bad_input(target: str) -> None:
    with pytest.raises(BadInput, match="cannot be imported"):
        resolved(target)


def test_a_target_that_cannot_be_called_is_bad_input() -> None:
    with pytest.raises(BadInput, match="is not a function"):
        resolved("math:pi")


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(BadInput, match=r"call it as \(a: int, b: int = 1\)"):
        subjects.add.encode(1, 2, 3)  # type: ignore[call-arg]
    with pytest.raises(BadInput, match="cannot be sent"):
        subjects.add.encode(lambda: None)  # type: ignore[arg-type]
    remote = function(url="http://x/")(subjects.add.code)
    with pytest.raises(BadInput, match="takes JSON"):
        remote.encode(object())  # type: ignore[arg-type]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.tuples(st.integers()),
    lambda inside: (
        st.lists(inside)
        | st.dictionaries(st.text() | st.integers(), inside)
        | st.tuples(inside, inside)
    ),
    max_leaves=10,
)


@given(values)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    came_back = unpacked(packed(value))
    assert came_back == value
    assert repr(came_back) == repr(value)


def test_plain_data_is_no_pickle() -> None:
    assert not is_pickled(packed([1, "a", {"b": [None, 2.5, b"c"]}]))
    for value in ((1,), {1: 2}, 1 << 70, subjects.Point(1)):
        assert is_pickled(packed(value))
