"""The link between two of our own processes: framed msgpack records over a stream socket.

See docs/adr/0031-one-link.md for why it is as it is.
"""

from artangram.link.blocking import BlockingLink, Posted, ready
from artangram.link.dial import LinkAddress, accept, dial, dial_for, listen
from artangram.link.errors import LinkBroken, LinkEnded, LinkFull, LinkRefused, PeerFailed
from artangram.link.exchange import IncomingAsk
from artangram.link.faults import FAULTS, Fault, FaultKind, Faults, worded
from artangram.link.link import Greet, Link, LinkUser, settle
from artangram.link.terms import LinkTerms

__all__ = [
    "FAULTS",
    "BlockingLink",
    "Fault",
    "FaultKind",
    "Faults",
    "Greet",
    "IncomingAsk",
    "Link",
    "LinkAddress",
    "LinkBroken",
    "LinkEnded",
    "LinkFull",
    "LinkRefused",
    "LinkTerms",
    "LinkUser",
    "PeerFailed",
    "Posted",
    "accept",
    "dial",
    "dial_for",
    "listen",
    "ready",
    "settle",
    "worded",
]
