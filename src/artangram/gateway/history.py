"""Tokens in a row, as the model read and sampled them. A line only ever grows at its end.

A fork begins with tokens of another line. They count as given there: training on both lines sees
every sampled token once, in the line that sampled it.
"""

from collections.abc import Sequence

from artangram.core.rollout.trajectory import Segment


class TokenHistory:
    """The token history of one conversation."""

    __slots__ = ("_segments", "_token_ids", "is_after_reply", "is_busy", "oldest_version")

    def __init__(self, given: Sequence[int] = (), *, is_after_reply: bool = False) -> None:
        self.is_after_reply = is_after_reply
        """The last token was sampled, here or in the line this one is a fork of."""
        self.is_busy = False
        """It is in a turn or about to be: no other turn may continue it."""
        self._token_ids = list(given)
        self._segments = [Segment(token_ids=tuple(given))] if given else []
        self.oldest_version: int | None = None

    def __len__(self) -> int:
        return len(self._token_ids)

    @property
    def last_id(self) -> int | None:
        return self._token_ids[-1] if self._token_ids else None

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def token_ids(self, end: int | None = None) -> tuple[int, ...]:
        return tuple(self._token_ids if end is None else self._token_ids[:end])

    def append(self, segment: Segment) -> None:
        if not segment.token_ids:
            return
        self._token_ids += segment.token_ids
        versions = [span.version for span in segment.spans]
        if self.oldest_version is not None:
            versions.append(self.oldest_version)
        self.oldest_version = min(versions, default=None)
        self._segments.append(segment)
        self.is_after_reply = segment.is_sampled

    def fork(self, end: int, *, is_after_reply: bool) -> "TokenHistory":
        """A new line that begins with the first `end` tokens of this one."""
        return TokenHistory(self._token_ids[:end], is_after_reply=is_after_reply)
