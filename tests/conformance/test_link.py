"""What a link promises, over every transport and between every kind of ends."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from busy_machine import PATIENCE_S, eventually
from link_support import (
    TRANSPORTS,
    ByHand,
    Card,
    Ears,
    Fail,
    Give,
    Leave,
    Note,
    Peer,
    Take,
    Wait,
    certificate,
    contexts,
    how_to_dial,
    listener,
    terms,
)

from artangram.core.errors import BadInput
from artangram.link import (
    BlockingLink,
    IncomingAsk,
    Link,
    LinkBroken,
    LinkEnded,
    LinkFull,
    LinkRefused,
    accept,
    dial,
    listen,
)
from artangram.link.frames import (
    ANSWER,
    ASK,
    BEAT,
    CREDIT,
    ECHO,
    HEAD,
    HELLO,
    MOST_FRAME_BYTES,
    OPEN,
    PART,
    TELL,
    frame,
)
from artangram.link.outbox import OPENING

MB = 1 << 20


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("links")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["async", "blocking"])
async def peer(
    request: pytest.FixtureRequest, transport: str, folder: Path, tmp_path: Path
) -> AsyncIterator[Peer]:
    place = tmp_path if transport == "unix" else folder
    peer = Peer(transport, blocks=request.param, folder=place)
    await peer.start()
    yield peer
    await peer.aclose()


@pytest.fixture
async def ears() -> Ears:
    return Ears()


@pytest.fixture
async def link(peer: Peer, ears: Ears) -> AsyncIterator[Link[Any]]:
    link = await dial(terms=terms(silence_s=30.0), user=ears, hello=Card("here"), **peer.dial)
    yield link
    await link.aclose()


async def told(ears: Ears) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return await ears.told.get()


async def test_tells_arrive_in_order(link: Link[Any], ears: Ears) -> None:
    for number in range(500):
        link.tell(Note(f"n{number}"))
    assert [(await told(ears)).text for _ in range(500)] == [f"n{number}" for number in range(500)]


async def test_an_ask_has_its_answer(link: Link[Any]) -> None:
    answers = await asyncio.gather(*(link.ask(Take(bytes(n)), int) for n in range(50)))
    assert answers == list(range(50))


async def test_an_error_arrives_as_the_same_error(link: Link[Any]) -> None:
    with pytest.raises(BadInput) as caught:
        await link.ask(Fail(), int)
    error = caught.value
    assert (error.field, error.problem, error.fix) == (
        "shape: of",
        "is: wrong; really",
        "mend: it; now",
    )


async def test_each_side_hears_the_hello_of_the_other(link: Link[Any], peer: Peer) -> None:
    assert link.peer(Card) == Card("there")
    if hasattr(peer.mirror, "link"):
        assert peer.mirror.link.peer(Card) == Card("here")


async def test_another_version_is_refused_with_one_sentence(peer: Peer, ears: Ears) -> None:
    with pytest.raises(LinkRefused, match="'test 2' and the other 'test 1'; use the same version"):
        await dial(terms=terms(version=2), user=ears, **peer.dial)
    assert ears.events == []


async def test_long_records_travel_both_ways(link: Link[Any], ears: Ears) -> None:
    data = bytes(range(256)) * (20 * MB // 256)
    link.tell(Note("long", data))
    assert (await told(ears)).data == data
    assert await link.ask(Take(data), int) == len(data)
    assert await link.ask(Give(9 * MB), bytes) == bytes(9 * MB)


async def test_many_long_records_at_once(link: Link[Any]) -> None:
    sizes = [MB + number for number in range(30)]
    answers = await asyncio.gather(*(link.ask(Take(bytes(n)), int, stream=None) for n in sizes))
    assert answers == sizes


async def test_a_short_record_overtakes_long_ones_of_other_streams(
    link: Link[Any], ears: Ears
) -> None:
    link.tell(Note("a long", bytes(64 * MB)), stream="a")
    link.tell(Note("a short"), stream="a")
    link.tell(Note("b short"), stream="b")
    texts = [(await told(ears)).text for _ in range(3)]
    assert texts == ["b short", "a long", "a short"]


async def test_heartbeats_pass_what_is_long(peer: Peer, ears: Ears) -> None:
    link = await dial(terms=terms(silence_s=0.06), user=ears, **peer.dial)
    data = bytes(8 * MB)

    async def flow() -> int:
        return sum([await link.ask(Take(data), int, stream=None) for _ in range(8)])

    began_at = time.monotonic()
    flowing = asyncio.gather(*(flow() for _ in range(4)))
    trips: list[float] = []
    while not flowing.done():
        await asyncio.sleep(0.02)
        trips.append(link.round_trip_s or 0.0)
    assert await flowing == [64 * MB] * 4
    # Behind what flows it would take as long as that; a busy machine may hold up single ones.
    assert 0 < max(trips) < max(0.5, (time.monotonic() - began_at) / 3), trips
    await link.aclose()


async def test_what_is_too_long_is_refused_before_it_is_sent(link: Link[Any]) -> None:
    with pytest.raises(ValueError, match="too many for one record; the other side takes"):
        link.tell(Note("long", bytes(161 * MB)))
    assert await link.ask(Take(b"x"), int) == 1


async def test_text_that_is_not_unicode_is_refused_before_it_is_sent(link: Link[Any]) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        await link.ask(Note("\udcff"))
    assert await link.ask(Take(b"x"), int) == 1


async def test_the_answer_to_a_cancelled_ask_is_ignored(link: Link[Any]) -> None:
    waiting = asyncio.create_task(link.ask(Wait(), str))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await link.ask(Take(b"x"), int) == 1
    assert await link.ask(Take(b"xy"), int) == 2
    assert waiting.cancelled()


async def test_asks_fail_when_the_stream_ends(link: Link[Any], ears: Ears) -> None:
    waiting = asyncio.create_task(link.ask(Wait(), str))
    with pytest.raises(LinkEnded):
        await link.ask(Leave(), str)
    with pytest.raises(LinkEnded):
        await waiting
    with pytest.raises(LinkEnded):
        await link.ask(Take(b""), int)
    link.tell(Note("into the void"))
    assert ears.events == ["end"]


async def test_closing_ends_the_peer_too(link: Link[Any], peer: Peer, ears: Ears) -> None:
    link.tell(Note("x"))
    await told(ears)
    await link.aclose()
    assert ears.events == ["end"]
    if hasattr(peer.mirror, "link"):
        async with asyncio.timeout(PATIENCE_S):
            assert not isinstance(await peer.mirror.ended, LinkBroken)


async def test_draining_returns_when_all_has_left(link: Link[Any]) -> None:
    link.tell(Note("long", bytes(30 * MB)))
    assert link.queued_bytes > 20 * MB
    await link.drain()
    assert link.queued_bytes == 0


# Faults, by a peer that writes its frames by hand.


@pytest.fixture
async def pair(ears: Ears) -> AsyncIterator[tuple[Link[Any], ByHand]]:
    ours, theirs = socket.socketpair()
    hand = ByHand(theirs)
    meeting = asyncio.create_task(asyncio.to_thread(hand.meet))
    link = await dial(ours, terms(silence_s=30.0, most_queued_bytes=8 * MB), ears)
    await meeting
    yield link, hand
    theirs.close()
    await link.aclose()


def _note(text: str) -> bytes:
    return msgspec.msgpack.encode(Note(text))


FAULTS_BY_HAND: dict[str, tuple[bytes, str]] = {
    "garbage": (b"\xff" * 64, "not of this protocol"),
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", "not of this protocol"),
    "oversized": (HEAD.pack(MOST_FRAME_BYTES + 1, TELL, 0), "not of this protocol"),
    "unknown kind": (frame(99), "not of this protocol"),
    "unknown number": (frame(ANSWER, 7, b"\xc0"), "number 7 was answered"),
    "a second hello": (frame(HELLO), "second hello"),
    "no record": (frame(TELL, 0, b"\x01"), "does not know"),
    "a part of nothing": (frame(PART, 1, b"x"), "does not belong"),
    "too long": (frame(OPEN, 1, OPENING.pack(TELL, 0, 1 << 40)), "longer than was agreed"),
    "opened twice": (frame(OPEN, 1, OPENING.pack(TELL, 0, 9)) * 2, "makes no sense"),
    "a bad opening": (frame(OPEN, 1, b"x"), "makes no sense"),
    "a long heartbeat": (
        frame(OPEN, 1, OPENING.pack(BEAT, 0, 1)) + frame(PART, 1, b"x"),
        "not of this protocol",
    ),
}
FAULTS_BY_HAND["too many at once"] = (
    b"".join(frame(OPEN, n, OPENING.pack(TELL, 0, 9)) for n in range(9)),
    "long records came at once",
)


@pytest.mark.parametrize("fault", FAULTS_BY_HAND, ids=lambda name: name.replace(" ", "-"))
async def test_what_came_before_a_fault_is_heard(
    fault: str, pair: tuple[Link[Any], ByHand], ears: Ears
) -> None:
    link, hand = pair
    wrong, words = FAULTS_BY_HAND[fault]
    waiting = asyncio.create_task(link.ask(Wait(), str))
    hand.sock.sendall(frame(TELL, 0, _note("good")) + wrong)
    assert await told(ears) == Note("good")
    error = await ears.ended
    assert isinstance(error, LinkBroken)
    assert words in str(error)
    with pytest.raises(LinkBroken):
        await waiting


@pytest.mark.parametrize("fault", FAULTS_BY_HAND, ids=lambda name: name.replace(" ", "-"))
async def test_a_blocking_end_finds_the_same_faults(fault: str) -> None:
    ours, theirs = socket.socketpair()
    hand = ByHand(theirs)
    wrong, words = FAULTS_BY_HAND[fault]
    meeting = asyncio.create_task(asyncio.to_thread(hand.meet))
    with theirs, await asyncio.to_thread(BlockingLink.dialed, ours, terms()) as link:
        await meeting
        theirs.sendall(frame(TELL, 0, _note("good")) + wrong)
        assert link.receive() == Note("good")
        with pytest.raises(LinkBroken, match=words):
            link.receive()


async def test_a_second_answer_breaks_the_link(pair: tuple[Link[Any], ByHand], ears: Ears) -> None:
    link, hand = pair
    asking = asyncio.create_task(link.ask(Take(b""), int))
    _, number, _ = await asyncio.to_thread(hand.next, ASK)
    hand.send((ANSWER, number, b"\x05"), (ANSWER, number, b"\x06"))
    assert await asking == 5
    assert isinstance(await ears.ended, LinkBroken)


async def test_an_answer_of_another_type_breaks_the_link(
    pair: tuple[Link[Any], ByHand], ears: Ears
) -> None:
    link, hand = pair
    asking = asyncio.create_task(link.ask(Take(b""), int))
    _, number, _ = await asyncio.to_thread(hand.next, ASK)
    hand.send((ANSWER, number, b"\xa1x"))
    with pytest.raises(LinkBroken, match="not what was asked for"):
        await asking
    assert isinstance(await ears.ended, LinkBroken)


async def test_a_cut_in_the_middle_of_a_frame_is_an_end_of_the_stream(
    pair: tuple[Link[Any], ByHand], ears: Ears
) -> None:
    _, hand = pair
    whole = frame(TELL, 0, _note("good"))
    hand.sock.sendall(whole + whole[:-1])
    hand.sock.shutdown(socket.SHUT_WR)
    assert await told(ears) == Note("good")
    error = await ears.ended
    assert not isinstance(error, LinkBroken)
    assert "in the middle of a frame" in str(error)


async def test_a_peer_that_does_not_read_fills_a_bounded_queue(
    pair: tuple[Link[Any], ByHand], ears: Ears
) -> None:
    link, hand = pair

    async def tell_for_ever() -> None:
        while True:
            link.tell(Note("x" * 60_000))
            await asyncio.sleep(0)

    with pytest.raises(LinkFull, match="wait for the other side to read them"):
        await tell_for_ever()
    assert link.queued_bytes <= 8 * MB
    draining = asyncio.create_task(link.drain())
    await asyncio.to_thread(_read_until, hand, lambda: draining.done())
    link.tell(Note("again"))
    assert ears.events == []


def _read_until(hand: ByHand, is_over: Callable[[], bool]) -> None:
    hand.sock.settimeout(0.05)
    while not is_over():
        try:
            hand.next()
        except TimeoutError:
            continue


async def test_long_records_wait_for_credit(pair: tuple[Link[Any], ByHand]) -> None:
    link, hand = pair
    link.tell(Note("long", bytes(5 * MB)))
    window = terms().window_bytes

    def parts(num_bytes: int) -> int:
        found = 0
        while found < num_bytes:
            found += len(hand.next(PART)[2])
        return found

    assert await asyncio.to_thread(parts, window) == window
    link.tell(Note("short"), stream="other")
    assert (await asyncio.to_thread(hand.next, PART, TELL))[0] == TELL
    hand.send((CREDIT, 100, b""))
    assert len((await asyncio.to_thread(hand.next, PART))[2]) == 100


async def test_silence_is_reported_and_so_is_its_end(ears: Ears) -> None:
    ours, theirs = socket.socketpair()
    hand = ByHand(theirs)
    meeting = asyncio.create_task(asyncio.to_thread(hand.meet))
    link = await dial(ours, terms(silence_s=0.2), ears)
    await meeting
    assert await eventually(lambda: bool(ears.events))
    assert ears.events == ["silent"]
    _, number, _ = await asyncio.to_thread(hand.next, BEAT)
    hand.send((ECHO, number, b""))
    assert await eventually(lambda: len(ears.events) > 1)
    assert ears.events[:2] == ["silent", "heard again"]
    assert not ears.ended.done()
    theirs.close()
    await link.aclose()


async def test_a_loop_that_stood_still_blames_nobody_else(peer: Peer, ears: Ears) -> None:
    link = await dial(terms=terms(silence_s=0.6), user=ears, **peer.dial)
    for _ in range(3):
        await asyncio.sleep(0.01)
        time.sleep(0.7)  # noqa: ASYNC251 - that is what is tested
    await link.ask(Take(b""), int)
    assert ears.events == []
    await link.aclose()


@pytest.mark.parametrize("transport", ["unix", "tcp", "tls"])
async def test_whoever_listens_refuses_with_one_sentence(
    transport: str, folder: Path, tmp_path: Path, ears: Ears
) -> None:
    place = tmp_path if transport == "unix" else folder
    at = listener(transport, place)
    heard: list[Card] = []

    def greet(link: Link[Any]) -> tuple[Ears, object]:
        heard.append(link.peer(Card))
        raise LinkRefused("the token is wrong; ask for another one")

    tls = contexts(certificate(place))[0] if transport == "tls" else None
    server = await listen(at, terms(), greet, tls=tls)
    with pytest.raises(LinkRefused, match=r"^the token is wrong; ask for another one$"):
        await dial(terms=terms(), user=ears, hello=Card("me"), **how_to_dial(transport, at, place))
    server.close()
    await server.wait_closed()
    assert heard == [Card("me")]


async def test_whoever_connects_and_says_nothing_is_cut_off(tmp_path: Path) -> None:
    at = listener("unix", tmp_path)

    def greet(link: Link[Any]) -> tuple[Ears, object]:
        raise AssertionError("it said nothing")

    server = await listen(at, terms(), greet, patience_s=0.1)
    reader, writer = await asyncio.open_unix_connection(at.getsockname())
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    server.close()


async def test_a_peer_that_never_says_hello_is_given_up(ears: Ears) -> None:
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(LinkEnded, match="no hello came"):
        await dial(ours, terms(), ears, patience_s=0.1)


async def test_two_blocking_ends_send_long_records_to_each_other_at_once() -> None:
    ours, theirs = socket.socketpair()

    def live(made: Callable[[], BlockingLink[Any]]) -> int:
        with made() as link:
            link.tell(Note("long", bytes(20 * MB)))
            heard = link.receive()
            assert isinstance(heard, Note)
            link.tell(Note("done"))
            assert link.receive() == Note("done")
            return len(heard.data)

    one = asyncio.to_thread(live, lambda: BlockingLink.dialed(ours, terms()))
    other = asyncio.to_thread(live, lambda: BlockingLink.accepted(theirs, terms()))
    assert await asyncio.gather(one, other) == [20 * MB, 20 * MB]


async def test_a_blocking_end_asks_and_is_asked(ears: Ears) -> None:
    ours, theirs = socket.socketpair()

    def live() -> int:
        with BlockingLink.dialed(theirs, terms()) as link:
            posted = link.post(Take(b"xyz"), int)
            heard = link.receive()
            assert isinstance(heard, IncomingAsk)
            heard.answer(11)
            return int(posted.result())

    living = asyncio.create_task(asyncio.to_thread(live))
    link = await accept(ours, terms(), ears)
    asked = await ears.asked.get()
    assert await link.ask(Wait(), int) == 11
    asked.answer(3)
    assert await living == 3
    await link.aclose()


async def test_an_ask_waits_while_the_queue_is_full(peer: Peer, ears: Ears) -> None:
    link = await dial(terms=terms(most_queued_bytes=MB), user=ears, **peer.dial)
    asking = [link.ask(Take(bytes(MB)), int, stream=None) for _ in range(12)]
    assert await asyncio.gather(*asking) == [MB] * 12
    await link.aclose()


async def test_closing_does_not_wait_for_a_peer_that_does_not_read(
    pair: tuple[Link[Any], ByHand],
) -> None:
    link, _ = pair
    for _ in range(40):
        link.tell(Note("x" * 60_000))
    link.close()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait({link.closed})
    assert link.closed.done()
