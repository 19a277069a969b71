"""The head's side of the watch process: starts it, speaks with it, starts it again when it dies.

Ray ends its drivers when their cluster ends, so the head is not a driver. What the watch process
did stays with the wardens; the next one finds it.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Self

import msgspec

from artangram.backends.ray.lookup import check_installed
from artangram.backends.ray.records import (
    Attached,
    CloseWatch,
    Failed,
    FromWatch,
    HeadServes,
    Said,
    ToWatch,
    WatchSettings,
    line,
)
from artangram.core.errors import BadInput

ATTACH_S = 60.0
CLOSE_S = 60.0
"""A little longer than the agents may take."""
AGAIN_S = 2.0


class RayWatcher:
    """See the module. Its lines for the user come from a thread."""

    def __init__(self, settings: WatchSettings, *, log: Path, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._log = log
        self._say = say
        self._serve: HeadServes | None = None
        self._over = Event()
        self._first: SimpleQueue[Attached | Failed] = SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeping = Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        check_installed("artangram up --ray")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attach(self) -> Attached:
        """Reach Ray. Raises `BadInput`."""
        self._keeping.start()
        try:
            found = self._first.get(timeout=ATTACH_S)
        except Empty:
            address = self._settings.address
            problem = f"Ray has not answered at {address!r} for {ATTACH_S:g} s"
            raise BadInput("--ray", problem, "see `ray status`") from None
        if isinstance(found, Failed):
            raise found.error()
        return found

    def serve(self, serve: HeadServes) -> None:
        """The head serves: bring the agents up."""
        self._serve = serve
        self._send(serve)

    def close(self) -> None:
        """End the agents and the wardens, and give the claims back."""
        if self._over.is_set() or not self._keeping.is_alive():
            return
        self._over.set()
        process = self._process
        if process is None:
            return
        if self._serve is None:
            process.terminate()
        self._send(CloseWatch())
        try:
            process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._say(f"Ray has not ended its agents within {CLOSE_S:g} s; see `ray list actors`")
            process.kill()
        self._keeping.join()

    def _keep(self) -> None:
        while not self._over.is_set():
            self._once()
            if not self._over.wait(AGAIN_S):
                self._say("The watch over Ray's nodes ended and is started again; agents go on.")

    def _once(self) -> None:
        """One life of the process."""
        words = [sys.executable, "-m", "artangram.backends.ray.watch"]
        pipe = subprocess.PIPE
        with (
            open(self._log, "ab") as log,
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *words],
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the head, which closes this one.
            ) as process,
        ):
            self._process = process
            self._send(self._settings)
            if self._serve is not None:
                self._send(self._serve)
            assert process.stdout is not None
            for text in process.stdout:
                self._heard(msgspec.json.decode(text, type=FromWatch))
        self._first.put(Failed("--ray", "the watch over Ray's nodes ended", f"see {self._log}"))

    def _heard(self, record: FromWatch) -> None:
        match record:
            case Said(text):
                self._say(text)
            case Failed() if self._serve is not None:
                self._say(str(record.error()))
            case Attached() | Failed():
                self._first.put(record)

    def _send(self, record: ToWatch) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(line(record))
            process.stdin.flush()
        except (OSError, ValueError):
            return  # It died; the next one hears all of it again.
