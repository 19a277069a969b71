"""Frames come whole, however they are cut on their way."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from artangram.gateway.engines.torchwire import Abort, FrameReader, LeaveEngine, Order, Pause, frame

orders = st.lists(st.lists(st.builds(Abort, st.integers(0, 99)) | st.just(Pause(1))), max_size=5)


@given(orders, st.lists(st.integers(1, 9)))
def test_what_is_sent_arrives(sent: list[list[Order]], cuts: list[int]):
    data = b"".join(frame(records) for records in sent)
    frames = FrameReader()
    received: list[bytes] = []
    for cut in [*cuts, len(data)]:
        received += frames.fed(data[:cut])
        data = data[cut:]
    assert [msgspec.msgpack.decode(body, type=list[Order]) for body in received] == sent


def test_a_record_without_fields_travels_too():
    (body,) = FrameReader().fed(frame([LeaveEngine()]))
    assert msgspec.msgpack.decode(body, type=list[Order]) == [LeaveEngine()]
