"""A Ray cluster over several hosts (`hosts`): real raylets, each on a host of its own.

A host has one init, under which Ray and everything else of the test run; killing it is a power
failure. Hosts have no name service, so each knows its own name from a file.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from artangram_bench.hosts import Host, environ

PORT = 6379
PATIENCE_S = 120.0
"""Until something has surely happened, or never will."""
_RAY = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
_QUIET = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_prestart_worker_first_driver": "0",
    # As everything else here; 15 by default.
    "RAY_worker_niceness": "0",
}
HASTY = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""For a Ray that tells the end of a raylet after 4 s instead of 15: not for a busy machine."""
_INIT = """
mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray
echo "127.0.0.1 localhost\n$1 $(hostname)" >"$2" && mount --bind "$2" /etc/hosts
echo up; exec sleep infinity
"""


class RayHost:
    """A host with an init, where Ray may run."""

    def __init__(self, host: Host, folder: Path, **more: str) -> None:
        """`more` is added to the environment of what runs here."""
        self.host = host
        self._more = more
        self.log = folder / f"{host.name}.ray.log"
        self._names = folder / f"{host.name}.hosts"
        self._init = 0

    @property
    def name(self) -> str:
        return self.host.name

    def boot(self) -> None:
        words = ("sh", "-c", _INIT, "sh", self.host.address, str(self._names))
        outer = self.host.run(*words, log=self.log)
        until(lambda: self.log.read_text().endswith("up\n"), self.log)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        self._init = int(children.read_text().split()[0])

    def start(self, *argv: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        """Run a program under the host's init."""
        words = ("nsenter", "--target", str(self._init), "--all", *argv)
        with open(log, "ab") as out:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environ(**more)
            )

    def artangram(self, *words: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        program = "from artangram.cli import main; raise SystemExit(main())"
        return self.start(sys.executable, "-c", program, *words, log=log, **more)

    def talk(self, module: str, *, log: Path) -> subprocess.Popen[str]:
        """Run a module with pipes to its standard input and output."""
        argv = ("nsenter", "--target", str(self._init), "--all", sys.executable, "-m", module)
        pipe = subprocess.PIPE
        with open(log, "ab") as errors:
            return subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=errors, env=self._environ(), text=True
            )

    def python(self, program: str, *words: str) -> str:
        """What a program prints that runs on this host."""
        argv = ("nsenter", "--target", str(self._init), "--all", sys.executable, "-c", program)
        return subprocess.run(
            [*argv, *words], env=self._environ(), text=True, stdout=subprocess.PIPE, check=True
        ).stdout

    def start_ray(self, head: "RayHost", *, cpus: int, more: tuple[str, ...] = ()) -> None:
        """A raylet here; on the head also what a Ray cluster has once."""
        where: tuple[str, ...] = ("--address", head.ray_address)
        if head is self:
            where = ("--head", "--port", str(PORT), "--include-dashboard", "false")
        argv = ("start", *where, "--node-ip-address", self.host.address, "--num-cpus", str(cpus))
        size = ("--object-store-memory", "80000000")
        words = (sys.executable, "-c", _RAY, *argv, *size, "--disable-usage-stats", *more)
        code = self.start(*words, log=self.log).wait(PATIENCE_S)
        assert code == 0, self.log.read_text()[-3000:]

    @property
    def ray_address(self) -> str:
        return f"{self.host.address}:{PORT}"

    def pids(self, *needles: str) -> list[int]:
        """Processes of this host whose command lines have all of these, as this process numbers."""
        found = []
        for pid in self.host.processes():
            with suppress(OSError):  # It has ended meanwhile.
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if all(needle in words for needle in needles):
                    found.append(pid)
        return found

    def _environ(self, **more: str) -> dict[str, str]:
        return environ(**{**_QUIET, **self._more, **more})


def until(holds: Callable[[], bool], log: Path, patience_s: float = PATIENCE_S) -> None:
    """Wait for it, and show the log if it does not come."""
    give_up_at = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < give_up_at, log.read_text()[-3000:]
        time.sleep(0.05)
