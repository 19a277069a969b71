"""How a platform lets a call in: a header with a secret, or a signature for AWS.

- `iam` signs every request with the credentials of the environment (`AWS_ACCESS_KEY_ID` and its
  companions), as a Lambda URL with authentication by IAM wants it.
- Everything else is the header `Authorization`. A secret is named, never written: `${NAME}` is
  taken from the environment when a call is made; no journal and no error shows it.
"""

from collections.abc import Mapping
from datetime import datetime
from string import Template

from artangram.core.errors import BadInput
from artangram.functions.function import FunctionSpec
from artangram.functions.sigv4 import Credentials, Scope, scope_of, signed

IAM = "iam"
_KEY_ID, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def check_authorization(spec: FunctionSpec, environ: Mapping[str, str]) -> None:
    """`BadInput` if calls could not be authorized from here."""
    said = spec.authorization
    if said is None:
        return
    template = Template(said)
    if not template.is_valid():
        fix = "write it as in `Bearer ${TOKEN}`, and a dollar sign as $$"
        raise BadInput("authorization", "names a secret in a way that cannot be read", fix)
    needed = (_KEY_ID, _SECRET) if said == IAM else template.get_identifiers()
    for name in needed:
        if name not in environ:
            fix = f"set {name} in the environment of the orchestrator"
            raise BadInput("authorization", f"${{{name}}} is not set", fix)
    if said == IAM and _scope(spec, environ) is None:
        fix = f"set {_REGIONS[0]} in the environment of the orchestrator"
        raise BadInput("authorization", f"{spec.url} does not say its region", fix)


def authorization_headers(
    spec: FunctionSpec, url: str, body: bytes, *, environ: Mapping[str, str], at: datetime
) -> dict[str, str]:
    """What one request needs to be let in; `check_authorization` has passed `spec`."""
    if spec.authorization is None:
        return {}
    if spec.authorization != IAM:
        return {"authorization": Template(spec.authorization).substitute(environ)}
    scope = _scope(spec, environ)
    assert scope is not None
    return signed(
        url,
        body,
        scope=scope,
        credentials=Credentials(environ[_KEY_ID], environ[_SECRET], environ.get(_TOKEN, "")),
        at=at,
    )


def _scope(spec: FunctionSpec, environ: Mapping[str, str]) -> Scope | None:
    assert spec.url is not None
    region = next((environ[name] for name in _REGIONS if environ.get(name)), "")
    return scope_of(spec.url, region=region)
