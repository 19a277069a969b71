"""Sockets whose connection ends when the other machine no longer knows it."""

import socket
from typing import Any

from artangram.aio import PROBE_AFTER_S, PROBE_EVERY_S, PROBES, probe_peer


def probed_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose connection ends when the other machine no longer knows it."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    probe_peer(made)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Also while it has not confirmed what it was sent.
        silent_ms = 1000 * (PROBE_AFTER_S + PROBE_EVERY_S * PROBES)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silent_ms)
    return made
