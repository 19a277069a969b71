"""What a function needs to be let in, said at once when it is missing."""

from datetime import UTC, datetime

import pytest

from artangram.core.errors import BadInput
from artangram.functions import FunctionSpec
from artangram.functions.authorization import authorization_headers, check_authorization

AT = datetime(2026, 11, 16, tzinfo=UTC)
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
IN_AWS = "https://abc.lambda-url.us-east-1.on.aws/"


def a_spec(authorization: str | None, url: str = "https://score.example.org/") -> FunctionSpec:
    return FunctionSpec(name="f", target="m:f", url=url, authorization=authorization)


@pytest.mark.parametrize(
    ("spec", "environ", "says"),
    [
        (a_spec("Bearer ${TOKEN}"), {}, r"\$\{TOKEN\} is not set; set TOKEN"),
        (a_spec("Bearer ${TO KEN}"), {}, "write it as in"),
        (a_spec("iam", IN_AWS), {}, "set AWS_ACCESS_KEY_ID"),
        (a_spec("iam", IN_AWS), {"AWS_ACCESS_KEY_ID": "k"}, "set AWS_SECRET_ACCESS_KEY"),
        (a_spec("iam"), KEYS, "does not say its region; set AWS_REGION"),
    ],
)
def test_what_is_missing_is_said_with_the_way_to_mend_it(
    spec: FunctionSpec, environ: dict[str, str], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        check_authorization(spec, environ)


@pytest.mark.parametrize(
    ("spec", "environ", "begins"),
    [
        (a_spec(None), {}, None),
        (a_spec("Basic abc="), {}, "Basic abc="),
        (a_spec("Bearer ${TOKEN}"), {"TOKEN": "t"}, "Bearer t"),
        (a_spec("iam", IN_AWS), KEYS, "AWS4-HMAC-SHA256 Credential=k/20261116/us-east-1/lambda/"),
        (a_spec("iam"), {**KEYS, "AWS_DEFAULT_REGION": "here"}, "AWS4-HMAC-SHA256"),
    ],
)
def test_what_is_sent(spec: FunctionSpec, environ: dict[str, str], begins: str | None) -> None:
    check_authorization(spec, environ)
    assert spec.url is not None
    headers = authorization_headers(spec, spec.url, b"", environ=environ, at=AT)
    assert begins is None or headers["authorization"].startswith(begins)
    assert (begins is None) is (headers == {})
