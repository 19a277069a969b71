"""Peers for tests of links: one in the loop, one that blocks in a thread, and sockets by hand."""

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.link import (
    BlockingLink,
    IncomingAsk,
    Link,
    LinkEnded,
    LinkRefused,
    LinkTerms,
    LinkUser,
    accept,
    listen,
    settle,
)
from artangram.link.frames import HEAD, HELLO, FrameReader, frame
from artangram.link.terms import hello_of


class Note(Struct, frozen=True, tag="note"):
    """A tell; the peer tells it back."""

    text: str
    data: bytes = b""


class Give(Struct, frozen=True, tag="give"):
    """Answered with so many bytes."""

    num_bytes: int


class Take(Struct, frozen=True, tag="take"):
    """Answered with how many bytes came."""

    data: bytes


class Fail(Struct, frozen=True, tag="fail"):
    """Refused."""


class Wait(Struct, frozen=True, tag="wait"):
    """Answered when the next one comes."""


class Leave(Struct, frozen=True, tag="leave"):
    """The peer closes without an answer."""


class Card(Struct, frozen=True):
    """What a side says about itself."""

    name: str


Record = Note | Give | Take | Fail | Wait | Leave


def terms(**more: Any) -> LinkTerms[Any]:
    decode = msgspec.msgpack.Decoder(Record).decode
    return LinkTerms(**{"name": "test", "version": 1, "decode": decode, **more})


def answer(record: Record) -> object:
    match record:
        case Give(num_bytes):
            return bytes(num_bytes)
        case Take(data):
            return len(data)
        case Fail():
            raise BadInput("shape: of", "is: wrong; really", "mend: it; now")
    raise AssertionError(record)


class Ears(LinkUser[Any]):
    """A user that remembers what it heard."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.asked: asyncio.Queue[IncomingAsk[Any]] = asyncio.Queue()
        self.events: list[str] = []
        self.ended: asyncio.Future[LinkEnded] = asyncio.get_running_loop().create_future()

    def on_tell(self, record: Any) -> None:
        self.told.put_nowait(record)

    def on_ask(self, asked: IncomingAsk[Any]) -> None:
        self.asked.put_nowait(asked)

    def on_silent(self, silent_s: float) -> None:
        self.events.append("silent")

    def on_heard_again(self) -> None:
        self.events.append("heard again")

    def on_end(self, error: LinkEnded) -> None:
        self.events.append("end")
        self.ended.set_result(error)


class Mirror(Ears):
    """Tells back what it is told, and answers what it is asked."""

    link: Link[Any]

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[IncomingAsk[Any]] = []

    def on_tell(self, record: Any) -> None:
        self.link.tell(record, stream=record.text[:1])

    def on_ask(self, asked: IncomingAsk[Any]) -> None:
        match asked.record:
            case Wait():
                self.waiting.append(asked)
            case Leave():
                self.link.close()
            case record:
                for each in self.waiting:
                    each.answer("late")
                self.waiting.clear()
                asyncio.create_task(settle(asked, _soon(record)))  # noqa: RUF006 - short-lived


async def _soon(record: Record) -> object:
    return answer(record)


def mirror_in_thread(sock: socket.socket, agreed: LinkTerms[Any], refusals: list[str]) -> None:
    """`Mirror` in a process without a loop."""
    waiting: list[IncomingAsk[Any]] = []
    try:
        with BlockingLink.accepted(sock, agreed, hello=Card("there")) as link:
            while True:
                heard = link.receive()
                if not isinstance(heard, IncomingAsk):
                    assert heard is not None
                    link.tell(heard, stream=heard.text[:1])
                elif isinstance(heard.record, Wait):
                    waiting.append(heard)
                elif isinstance(heard.record, Leave):
                    return
                else:
                    for each in waiting:
                        each.answer("late")
                    waiting.clear()
                    try:
                        heard.answer(answer(heard.record))
                    except BadInput as error:
                        heard.refuse(error)
    except LinkRefused as error:
        refusals.append(str(error))
    except LinkEnded:
        pass


def certificate(folder: Path) -> Path:
    """A key and a certificate for localhost, in one file."""
    file = folder / "pair.pem"
    if not file.exists():
        made = ("-newkey", "rsa:2048", "-nodes", "-keyout", str(file), "-out", f"{file}.crt")
        names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        argv = ("openssl", "req", "-x509", *made, *names, "-days", "2")
        subprocess.run(argv, check=True, capture_output=True)
        file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def contexts(file: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the side that listens and the side that dials."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cafile=str(file))
    return server, client


TRANSPORTS = ("socketpair", "unix", "tcp", "tls")


def listener(transport: str, folder: Path) -> socket.socket:
    """A socket that listens."""
    if transport == "unix":
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(folder / "listener"))
    else:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.bind(("127.0.0.1", 0))
    made.listen()
    return made


def how_to_dial(transport: str, at: socket.socket, folder: Path) -> dict[str, Any]:
    """Arguments of `dial`."""
    if transport == "unix":
        return {"address": Path(at.getsockname())}
    if transport == "tls":
        _, client = contexts(certificate(folder))
        return {"address": at.getsockname(), "tls": client, "server_name": "localhost"}
    return {"address": at.getsockname()}


class Peer:
    """A mirror at the other end, in the loop or in a thread."""

    def __init__(self, transport: str, *, blocks: bool, folder: Path, **more: Any) -> None:
        self.dial: dict[str, Any] = {}
        self.refusals: list[str] = []
        self.mirror = Mirror()
        self._transport = transport
        self._blocks = blocks
        self._folder = folder
        self._terms = terms(**more)
        self._close: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None
        self._accepting: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        if self._transport == "socketpair":
            ours, theirs = socket.socketpair()
            self.dial = {"address": ours}
            if self._blocks:
                self._in_thread(lambda: theirs)
            else:
                self._accepting = asyncio.create_task(self._accepted(theirs))
            return
        at = listener(self._transport, self._folder)
        self.dial = how_to_dial(self._transport, at, self._folder)
        tls = contexts(certificate(self._folder))[0] if self._transport == "tls" else None
        if self._blocks:
            self._close.append(at.close)
            self._in_thread(lambda: _taken(at, tls))
        else:
            server = await listen(at, self._terms, self._greet, tls=tls)
            self._close.append(server.close)

    async def aclose(self) -> None:
        for close in self._close:
            close()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        if hasattr(self.mirror, "link"):
            await self.mirror.link.aclose()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _greet(self, link: Link[Any]) -> tuple[Mirror, object]:
        self.mirror.link = link
        return self.mirror, Card("there")

    async def _accepted(self, sock: socket.socket) -> None:
        try:
            self.mirror.link = await accept(sock, self._terms, self.mirror, hello=Card("there"))
        except LinkRefused as error:
            self.refusals.append(str(error))

    def _in_thread(self, taken: Callable[[], socket.socket]) -> None:
        def live() -> None:
            mirror_in_thread(taken(), self._terms, self.refusals)

        self._thread = threading.Thread(target=live)
        self._thread.start()


def _taken(at: socket.socket, tls: ssl.SSLContext | None) -> socket.socket:
    sock, _ = at.accept()
    return sock if tls is None else tls.wrap_socket(sock, server_side=True)


class ByHand:
    """A peer that writes its frames by hand, and may write any bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._frames = FrameReader()
        self._found: list[tuple[int, int, bytes]] = []
        sock.settimeout(60)

    def send(self, *frames: tuple[int, int, bytes]) -> None:
        self.sock.sendall(b"".join(frame(*each) for each in frames))

    def next(self, *kinds: int) -> tuple[int, int, bytes]:
        """The next frame, of these kinds if any are named."""
        while True:
            while not self._found:
                data = self.sock.recv(1 << 16)
                if not data:
                    raise EOFError
                self._found += self._frames.fed(data)
            found = self._found.pop(0)
            if not kinds or found[0] in kinds:
                return found

    def meet(self, **more: Any) -> None:
        """Take the peer's hello, and answer it."""
        assert self.next()[0] == HELLO
        self.send((HELLO, 0, hello_of(terms(**more), None)))


HEAD_BYTES = HEAD.size
