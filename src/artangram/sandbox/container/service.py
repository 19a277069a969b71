"""Podman's service on a private socket, for as long as we need it and never longer."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from artangram.sandbox.errors import NotCapable
from artangram.sandbox.namespace.launch import interpreter, program

START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0
MAX_NAME_BYTES = 107


class PodmanService:
    """Starts at once, on the thread that lives as long as the service is needed: it ends then."""

    def __init__(self, directory: Path) -> None:
        """Its socket is in `directory`, or elsewhere if that is too deep for a socket's name."""
        self._socket = directory / "podman.sock"
        self._elsewhere = ""
        if len(os.fsencode(self._socket)) > MAX_NAME_BYTES:
            self._elsewhere = tempfile.mkdtemp(prefix="artangram-podman-")
            self._socket = Path(self._elsewhere) / "podman.sock"
        argv = ["podman", "system", "service", "--time", "0", f"unix://{self._socket}"]
        self._process = subprocess.Popen(
            interpreter(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # Podman forgets a copy of every image it imports: it is to go when our directory goes.
            env={**os.environ, "TMPDIR": str(directory)},
        )
        assert self._process.stdin is not None
        with self._process.stdin as script:
            script.write(program("pdeathsig", os.getpid(), argv))

    def __repr__(self) -> str:
        return f"<PodmanService {self._process.pid}>"

    def wait_ready(self) -> str:
        """The address to connect to; blocks until the service listens there."""
        gives_up_at = time.monotonic() + START_TIMEOUT_S
        while not listens(str(self._socket)):
            if self._process.poll() is not None or time.monotonic() > gives_up_at:
                raise NotCapable("podman's service does not start: try `podman info`")
            time.sleep(0.01)
        return f"unix://{self._socket}"

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._elsewhere:
            shutil.rmtree(self._elsewhere, ignore_errors=True)


def listens(path: str) -> bool:
    """Whether a server takes connections at the socket `path`."""
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(path)
        except OSError:
            return False
        return True
