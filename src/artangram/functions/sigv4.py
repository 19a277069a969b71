"""Signs requests for AWS, Signature Version 4: what a Lambda URL with authentication by IAM wants.

Pure: the same request, credentials and time give the same headers. Signed are the method, the
address, the body, and the headers `host` and those that are added here; the sender may add
others. The address has to be sent as it is signed, already quoted.
"""

import hmac
import posixpath
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_HOST = re.compile(
    r"(?:.+\.)?(?P<service>lambda-url|lambda|execute-api)\.(?P<region>[a-z0-9-]+)"
    r"\.(?:on\.aws|api\.aws|amazonaws\.com)(?:\.cn)?"
)
_PORTS = {"http": 80, "https": 443}


class Credentials(NamedTuple):
    """The identity that signs."""

    key_id: str
    secret: str
    token: str = ""
    """Of a session; long-lived keys have none."""

    def __repr__(self) -> str:
        return f"<Credentials {self.key_id}>"


class Scope(NamedTuple):
    """What a signature is good for."""

    service: str
    region: str


def scope_of(url: str, *, region: str = "") -> Scope | None:
    """What an address asks to be signed for; `region` where it does not say; `None` without either.

    An address that is not AWS's own is taken for one of Lambda.
    """
    found = _HOST.fullmatch(urlsplit(url).hostname or "")
    if found is None:
        return Scope("lambda", region) if region else None
    return Scope(found["service"].removesuffix("-url"), found["region"])


def signed(
    url: str,
    body: bytes,
    *,
    scope: Scope,
    credentials: Credentials,
    at: datetime,
) -> dict[str, str]:
    """The headers that let a POST in; `at` is the time in UTC."""
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": _host(url), "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    request = sha256(_canonical(url, body, headers, names).encode()).hexdigest()
    where = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, where, request))
    signature = hmac.new(_key(credentials.secret, where), text.encode(), sha256).hexdigest()
    granted = f"Credential={credentials.key_id}/{where}, SignedHeaders={names}"
    headers["authorization"] = f"{_ALGORITHM} {granted}, Signature={signature}"
    del headers["host"]  # The client sends it anyway.
    return headers


def _canonical(url: str, body: bytes, headers: Mapping[str, str], names: str) -> str:
    """The request in the one way of writing it that both sides sign."""
    parts = urlsplit(url)
    # Quoted once more: only S3 takes a path as it was sent.
    path = quote(_normal(parts.path), safe="/~")
    pairs = sorted((key, value) for key, _, value in map(_partition, parts.query.split("&")))
    query = "&".join(f"{key}={value}" for key, value in pairs) if parts.query else ""
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)]
    return "\n".join(("POST", path, query, *lines, "", names, sha256(body).hexdigest()))


def _partition(pair: str) -> tuple[str, str, str]:
    return pair.partition("=")


def _normal(path: str) -> str:
    """Without `.`, `..` and doubled slashes; one at the end stays."""
    if not path:
        return "/"
    normal = "/" + posixpath.normpath(path).lstrip("/")
    return normal + "/" if path.endswith("/") and normal != "/" else normal


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if parts.port is not None and parts.port == _PORTS.get(parts.scheme):
        host = host.rpartition(":")[0]
    return host


def _key(secret: str, where: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in where.split("/"):
        key = hmac.new(key, part.encode(), sha256).digest()
    return key
