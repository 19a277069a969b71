"""What is said of an outside API: where it is, what it allows, how to be let in.

- A secret is named, never written: `${SEARCH_KEY}` in a header or parameter is taken from the
  environment when a call is made. Neither the journal nor an error shows it.
- `quota` is what the scheduler paces by. Its window is a little longer than the API's own: see
  `gate` for why.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import CallWindow, QuotaSpec

DELIVERY_SHARE, MOST_DELIVERY_S = 0.05, 2.0
"""The part of a window that a delivery may take; where answers take as long, our rate loses it."""
USUAL_SHARE = 0.2
"""What deliveries usually take, of what they may take."""

_NAMED = re.compile(r"\$\{(\w+)\}")


class ApiSpec(Struct, frozen=True, kw_only=True):
    """An outside HTTP API. Without limits it is only called with retries and a breaker."""

    base_url: str
    headers: dict[str, str] = {}
    """Sent with every call; `${NAME}` is taken from the environment."""
    params: dict[str, str] = {}
    """Likewise, for APIs that want their key in the query."""
    concurrency: int | None = None
    """The most calls under way at once."""
    limit: int | None = None
    """The most calls in any window of `window_s`."""
    window_s: float = 60.0
    windows: tuple[CallWindow, ...] = ()
    """Further limits, as in `({"limit": 10000, "window_s": 86400},)`, of tokens with
    `"unit": "tokens"`; all of them hold."""
    delivery_s: float | None = None
    """How long a request may take to arrive, when its answer does not come sooner; a small part of
    the window if unsaid. More costs rate where answers are slow, less risks a refusal."""
    answer_bytes: int = 8 << 20
    """A longer answer is a failed call."""
    silence_s: float = 120.0
    """A call that receives nothing for this long has failed."""
    patience: int = 5
    """After this number of failures in a row no call is made for a while."""
    rest_s: float = 1.0
    """For how long, the first time; twice as long each further time, up to `most_rest_s`."""
    most_rest_s: float = 60.0

    @property
    def spread_s(self) -> float:
        """How long a request is taken to be under way at most."""
        return self.spread_of(self.window_s)

    def spread_of(self, window_s: float) -> float:
        """The same for a window of this length."""
        if self.delivery_s is not None:
            return self.delivery_s
        return min(DELIVERY_SHARE * window_s, MOST_DELIVERY_S)

    def gates(self) -> list[tuple[int, float, float]]:
        """Limit, length and spread of every window of calls; the scheduler paces tokens."""
        first = [] if self.limit is None else [(self.limit, self.window_s)]
        calls = ((one.limit, one.window_s) for one in self.windows if one.unit == "calls")
        all_of_them = [*first, *calls]
        return [(limit, window_s, self.spread_of(window_s)) for limit, window_s in all_of_them]

    def quota(self) -> QuotaSpec:
        """The pool this API is to the scheduler."""
        return QuotaSpec(
            concurrency=self.concurrency,
            limit=self.limit,
            window_s=self.window_s + USUAL_SHARE * self.spread_s,
            windows=tuple(
                structs.replace(
                    one, window_s=one.window_s + USUAL_SHARE * self.spread_of(one.window_s)
                )
                for one in self.windows
            ),
        )


def checked(name: str, spec: ApiSpec, environ: Mapping[str, str]) -> ApiSpec:
    """`spec` itself, or `BadInput` for what could never be called."""
    try:
        parts = urlsplit(spec.base_url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address = is_address and (parts.port is None or parts.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise BadInput(
            f"{name}.base_url",
            f"{spec.base_url!r} is not an HTTP address",
            "write https://host/path",
        )
    for field in ("concurrency", "limit", "window_s", "answer_bytes", "patience", "rest_s"):
        value = getattr(spec, field)
        if value is not None and value <= 0:
            raise BadInput(f"{name}.{field}", f"{value!r} allows nothing", "give more than 0")
    for missing in secrets_of(spec) - environ.keys():
        fix = f"set {missing} in the environment of the orchestrator"
        raise BadInput(f"{name}.headers", f"${{{missing}}} is not set", fix)
    return spec


def secrets_of(spec: ApiSpec) -> set[str]:
    """The names of the environment variables it takes something from."""
    texts = [*spec.headers.values(), *spec.params.values()]
    return {name for text in texts for name in _NAMED.findall(text)}


def filled(texts: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """`texts` with every `${NAME}` replaced."""
    return {key: _NAMED.sub(lambda m: environ[m[1]], text) for key, text in texts.items()}
