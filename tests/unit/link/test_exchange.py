"""Two exchanges joined without sockets: whatever the pieces, records come whole and in order."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from link_support import Note, terms

from artangram.link import IncomingAsk, LinkRefused
from artangram.link.exchange import Exchange
from artangram.link.frames import MOST_FRAME_BYTES, FrameReader, frame
from artangram.link.terms import LinkHello


class Side:
    """One end; what leaves it is taken by hand."""

    def __init__(self, **more: Any) -> None:
        self.heard: list[Note] = []
        self.exchange: Exchange[Any] = Exchange(terms(**more), self)

    def on_tell(self, record: Note) -> None:
        self.heard.append(record)

    def on_ask(self, asked: IncomingAsk[Any]) -> None: ...

    def on_hello(self, hello: LinkHello) -> None: ...

    def on_refused(self, error: LinkRefused) -> None:
        raise error

    def on_echo(self, number: int) -> None: ...

    def wake(self) -> None: ...

    def leaving(self) -> bytes:
        return self.exchange.outbox.whole() or self.exchange.outbox.part()


def joined(**more: Any) -> tuple[Side, Side]:
    one, other = Side(**more), Side(**more)
    one.exchange.greet(None)
    other.exchange.greet(None)
    other.exchange.feed(one.leaving())
    one.exchange.feed(other.leaving())
    return one, other


record = st.tuples(st.sampled_from(["", "a", "b", None]), st.integers(0, 300_000))


@settings(max_examples=60)
@given(st.lists(record, max_size=12), st.integers(1, 400_000), st.integers(1, 8))
def test_records_of_a_stream_keep_their_order(
    records: list[tuple[str | None, int]], piece: int, ahead: int
) -> None:
    one, other = joined(window_bytes=100_000)
    for number, (stream, size) in enumerate(records):
        one.exchange.tell(Note(f"{stream}{number}", bytes(size)), stream)
    while data := b"".join(one.leaving() for _ in range(ahead)):
        for start in range(0, len(data), piece):
            other.exchange.feed(data[start : start + piece])
        one.exchange.feed(other.leaving())
    assert one.exchange.outbox.is_empty
    assert one.exchange.outbox.queued_bytes == 0
    assert len(other.heard) == len(records)
    for stream in ("", "a", "b"):
        sent = [f"{s}{n}" for n, (s, _) in enumerate(records) if s == stream]
        mine = [note.text for note in other.heard if note.text in set(sent)]
        assert mine == sent
    sizes = {f"{s}{n}": size for n, (s, size) in enumerate(records)}
    assert all(len(note.data) == sizes[note.text] for note in other.heard)


frames = st.tuples(
    st.integers(1, 11),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=200) | st.just(bytes(MOST_FRAME_BYTES)),
)


@given(st.lists(frames, max_size=6), st.integers(1, 3000))
def test_frames_are_the_same_however_they_are_cut(
    wanted: list[tuple[int, int, bytes]], piece: int
) -> None:
    data = b"".join(frame(*each) for each in wanted)
    reader = FrameReader()
    found = []
    for start in range(0, len(data), piece):
        found += list(reader.fed(data[start : start + piece]))
    assert found == wanted
    assert reader.is_between_frames
