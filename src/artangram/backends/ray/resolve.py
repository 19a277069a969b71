"""A process that answers one question: where is the head of the Ray cluster at this address?

A process of its own, because Ray ends its drivers when their cluster ends; the caller goes on.
"""

import sys

from ray._raylet import GcsClient
from ray.experimental import internal_kv

from artangram.backends.ray.cluster import connect_to, own_head
from artangram.backends.ray.records import Answer, Failed, HeadRecord, line
from artangram.core.errors import BadInput

CLIENT_PORT = "10001"
"""Where Ray's own client connects by default; other ports are those of `ray start --address`."""
REACH_S = 10.0


def resolve(address: str) -> HeadRecord:
    """`address` is auto, or HOST:PORT of Ray or of its client server. Raises `BadInput`."""
    if address == "auto":
        connect_to(address)
    elif address.endswith(f":{CLIENT_PORT}"):
        connect_to(f"ray://{address}")
    else:
        _reach(address)
    return own_head(address)


def _reach(address: str) -> None:
    """Any machine that reaches Ray's port can ask; it need not belong to the cluster."""
    try:
        store = GcsClient(address=address)
        store.internal_kv_exists(b"head", b"artangram", timeout=REACH_S)
    except Exception as error:  # noqa: BLE001 - Ray raises what it likes here
        said = " ".join(str(error).split())[:200].rstrip(".")
        problem = f"no Ray cluster answers at {address} ({said})"
        fix = f"give what `ray start` takes as --address, or Ray's client port {CLIENT_PORT}"
        raise BadInput("url", problem, fix) from None
    internal_kv._initialize_internal_kv(store)


def main() -> None:
    """The address is the argument; the answer is one line of JSON."""
    answer: Answer
    try:
        answer = resolve(sys.argv[1])
    except BadInput as error:
        answer = Failed.by(error)
    sys.stdout.buffer.write(line(answer))


if __name__ == "__main__":
    main()
