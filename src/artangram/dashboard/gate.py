"""Admits to the dashboard: callers with the service's token, and browsers that showed it once.

- A browser shows the token once and gets a cookie that opens these pages only: not the token, and
  useless for anything that changes the cluster. It is derived from the token, so that it survives a
  restart of the service and ends when the token changes.
- Requests that another site makes a browser send are refused, whatever cookie they carry.
"""

import hashlib
import hmac
from collections.abc import Mapping

from artangram.aio import has_token

COOKIE = "artangram_dashboard"
KEPT_S = 30 * 86_400
"""How long a browser is let in without the token."""

_OURS = ("same-origin", "none")
"""What a browser says about requests of our own pages, and of an address that was typed in."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # With no-referrer, our own form would say no origin.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer: a page runs our scripts only, and appears in no page of others."""


class PageGate:
    """Without a token every caller may look, as with the rest of the service."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def admits(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        """May this request see a page?"""
        if not is_ours(headers):
            return False
        if self._token is None or has_token(headers, self._token):
            return True
        return hmac.compare_digest(cookies.get(COOKIE, "").encode(), self.pass_().encode())

    def accepts(self, headers: Mapping[str, str], given: str) -> bool:
        """Is this the token, shown by one of our own pages or by an address that was typed in?"""
        if not is_ours(headers):
            return False
        return self._token is None or hmac.compare_digest(given.encode(), self._token.encode())

    def pass_(self) -> str:
        """What the cookie holds."""
        key = (self._token or "").encode()
        return hmac.new(key, b"artangram dashboard", hashlib.sha256).hexdigest()


def is_ours(headers: Mapping[str, str]) -> bool:
    """Did a page of ours, a person or a program make the request, and no other site?"""
    if headers.get("sec-fetch-site", "none") not in _OURS:
        # A link on another site may lead here: it opens a page, and reads nothing.
        return headers.get("sec-fetch-mode") == "navigate" and "origin" not in headers
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host", "")
