"""Heartbeats of one end, and how long its peer has been silent.

Anything that comes counts, not only echoes. A tick that is late means that this process stood
still, not the peer: that time is not held against it.
"""

import asyncio
from typing import Any, Protocol

from artangram.link.exchange import Exchange


class SilenceUser(Protocol):
    """Hears when the peer falls silent and when it is heard again."""

    def on_silent(self, silent_s: float) -> None: ...

    def on_heard_again(self) -> None: ...


class Heartbeat:
    """Beats until it is stopped."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange[Any],
        user: SilenceUser,
        silence_s: float,
    ) -> None:
        self.round_trip_s: float | None = None
        self.confirmed_at: float | None = None
        """When the last beat was sent that came back."""
        self._loop = loop
        self._exchange = exchange
        self._user = user
        self._silence_s = silence_s
        self._every_s = silence_s / 3
        self._heard_at = loop.time()
        self._is_silent = False
        self._number = 0
        self._is_echoed = True
        self._sent_at = 0.0
        self._due_at = self._heard_at
        self._timer = loop.call_soon(self._tick)

    def heard(self) -> None:
        """Something came."""
        self._heard_at = self._loop.time()
        if self._is_silent:
            self._is_silent = False
            self._user.on_heard_again()

    def echoed(self, number: int) -> None:
        if number == self._number:
            self._is_echoed = True
            self.confirmed_at = self._sent_at
            self.round_trip_s = self._loop.time() - self._sent_at

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        now = self._loop.time()
        late_s = now - self._due_at
        if late_s > self._every_s:
            self._heard_at += late_s
        self._due_at = now + self._every_s
        self._timer = self._loop.call_at(self._due_at, self._tick)
        silent_s = now - self._heard_at
        if silent_s >= self._silence_s and not self._is_silent:
            self._is_silent = True
            self._user.on_silent(silent_s)
        # Behind what a peer does not read, beats would only pile up.
        if self._is_echoed or not self._exchange.outbox.queued_bytes:
            self._is_echoed = False
            self._number += 1
            self._sent_at = now
            self._exchange.beat(self._number)
