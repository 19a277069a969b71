"""Signatures, with AWS's own library as the oracle."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.functions.sigv4 import Credentials, Scope, scope_of, signed

pytest.importorskip("botocore")

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as Theirs

AT = datetime(2026, 11, 16, 10, 30, 5, tzinfo=UTC)

pieces = ["a", "b", "/", ".", "..", "%20", "%C3%A9", "~", "-", "_", ":", "+"]
segments = st.lists(st.sampled_from(pieces), max_size=8).map("".join)
queries = st.lists(
    st.tuples(st.text("abQ-_~", min_size=1, max_size=3), st.text("xyZ%3D", max_size=4)), max_size=4
)


class At(SigV4Auth):
    """Theirs, with the time as an argument."""

    def add_auth(self, request: AWSRequest) -> None:
        request.context["timestamp"] = AT.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


def theirs(url: str, body: bytes, scope: Scope, credentials: Credentials) -> dict[str, str]:
    request = AWSRequest("POST", url, data=body)
    At(Theirs(*credentials[:2], credentials.token or None), *scope).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@given(
    path=segments,
    query=queries,
    body=st.binary(max_size=40),
    port=st.sampled_from(["", ":443", ":8443"]),
    token=st.sampled_from(["", "a+session/token=="]),
)
def test_a_signature_is_that_of_botocore(
    path: str, query: list[tuple[str, str]], body: bytes, port: str, token: str
) -> None:
    url = f"https://abc.lambda-url.eu-central-1.on.aws{port}/{path}"
    if query:
        url += "?" + "&".join(f"{key}={value}" for key, value in query)
    credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    scope = Scope("lambda", "eu-central-1")
    ours = signed(url, body, scope=scope, credentials=credentials, at=AT)
    assert ours == theirs(url, body, scope, credentials)


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("https://abc.lambda-url.us-east-1.on.aws/", Scope("lambda", "us-east-1")),
        ("https://lambda.us-west-2.amazonaws.com/2015-03-31/x", Scope("lambda", "us-west-2")),
        ("https://lambda.cn-north-1.amazonaws.com.cn/", Scope("lambda", "cn-north-1")),
        ("https://a1.execute-api.eu-west-1.amazonaws.com/p", Scope("execute-api", "eu-west-1")),
        ("https://score.example.org/", Scope("lambda", "eu-central-1")),
        ("https://lambda.us-west-2.amazonaws.com.evil.org/", Scope("lambda", "eu-central-1")),
    ],
)
def test_an_address_says_what_to_sign_for(url: str, scope: Scope) -> None:
    assert scope_of(url, region="eu-central-1") == scope


def test_an_address_without_a_region_needs_one() -> None:
    assert scope_of("https://score.example.org/") is None


def test_credentials_do_not_show_their_secret() -> None:
    assert "wJalr" not in repr(Credentials("AKIDEXAMPLE", "wJalr", "token"))
