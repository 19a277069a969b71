"""What can go wrong with a link itself, never with what was said over it.

An end of the stream is not the death of the peer: the user of a link decides what it means.
"""


class LinkEnded(Exception):
    """The stream ended; the message says how. Every ask that waits fails with it."""


class LinkBroken(LinkEnded):
    """The peer sent what the protocol does not allow, so this end closed the link."""


class LinkRefused(Exception):
    """One side did not accept the other's hello; the message is the one sentence why."""


class LinkFull(Exception):
    """The peer reads too slowly: the queue is full, and the record was not sent."""


class PeerFailed(Exception):
    """The peer raised an error whose type this side does not know."""
