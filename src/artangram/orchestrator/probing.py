"""Sockets whose connection ends when the other machine no longer knows it."""

import socket
from typing import Any

PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 10, 5, 4
"""A request may wait for hours, and a machine that loses power says nothing: the kernel asks it
whether the connection is still there. After 30 s without an answer the request has none."""


def probed_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose connection ends when the other machine no longer knows it."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; others have probes of two hours.
        silent_ms = 1000 * (PROBE_AFTER_S + PROBE_EVERY_S * PROBES)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silent_ms)
    return made
