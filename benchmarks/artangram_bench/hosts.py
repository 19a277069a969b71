"""Several hosts on one machine: network namespaces on a bridge, each with its own processes.

A host has an address, a process tree, `/dev/shm` and a name of its own. `power_off` ends its
processes; `lose_power` also forgets its network, so that no peer hears of it; `cut` is a partition.
Needs root and iproute2.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from artangram.core.errors import BadInput

CAN_MAKE_HOSTS = os.geteuid() == 0 and all(map(shutil.which, ("ip", "unshare")))
WHY_NOT = "needs root, iproute2 and util-linux"

_cables = count(1)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def environ(**more: str) -> dict[str, str]:
    """Of a process that imports what we import, and this very tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def processes_in(spaces: Container[str]) -> list[int]:
    """The processes whose namespace of processes is one of these."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # It has ended meanwhile.
            if os.readlink(f"/proc/{name}/ns/pid") in spaces:
                found.append(int(name))
    return found


def children_of(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time of these processes so far, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Host:
    """One host; `run` starts an init of it."""

    def __init__(self, name: str, address: str, bridge: str) -> None:
        self.name = name
        self.address = address
        self._bridge = bridge
        self._veth = ""
        self._inits: list[subprocess.Popen[bytes]] = []
        self._connect()

    def __repr__(self) -> str:
        return f"<Host {self.name}: {len(self._inits)} inits>"

    def run(self, *argv: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        """Start a program as an init of this host; all it starts ends with it."""
        inner = f'hostname {self.name}; mount -t tmpfs tmpfs /dev/shm; exec "$@"'
        outer = ("ip", "netns", "exec", self.name, "unshare", "-m", "-p", "-f", "-u")
        words = (*outer, "--kill-child", "--mount-proc", "sh", "-c", inner, "sh", *argv)
        with open(log, "ab") as file:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ(**more)
            )
        self._inits.append(process)
        return process

    def artangram(self, *words: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        """Run a verb on this host."""
        program = "from artangram.cli import main; raise SystemExit(main())"
        return self.run(sys.executable, "-c", program, *words, log=log, **more)

    def processes(self) -> list[int]:
        """Every process here, as this machine numbers them."""
        inits = [child for init in self._inits for child in children_of(init.pid)]
        return processes_in({os.readlink(f"/proc/{init}/ns/pid") for init in inits})

    def pids(self) -> list[int]:
        """The processes that `run` started, as this machine numbers them."""
        return [init.pid for init in self._inits]

    def end(self, patience_s: float) -> list[int]:
        """Tell the programs here to end (SIGTERM), as a supervisor does; their exit codes."""
        for init in self._inits:
            for child in children_of(init.pid):
                os.kill(child, signal.SIGTERM)
        return [init.wait(patience_s) for init in self._inits]

    def power_off(self) -> None:
        """Everything here ends at once. The kernel still closes its connections."""
        for init in self._inits:
            init.kill()
        for init in self._inits:
            init.wait()
        self._inits.clear()

    def lose_power(self) -> None:
        """Everything here ends at once, without a word to anybody."""
        self.cut()
        self.power_off()
        self._remove()
        self._connect()

    def cut(self) -> None:
        _ip("link", "set", self._veth, "down")

    def heal(self) -> None:
        _ip("link", "set", self._veth, "up")

    def remove(self) -> None:
        self.power_off()
        with suppress(subprocess.CalledProcessError):
            self._remove()

    def _connect(self) -> None:
        # A new name each time: the kernel takes a while to forget the cable before.
        self._veth = f"{self._bridge}v{next(_cables)}"
        _ip("netns", "add", self.name)
        # The same card as before: others know its address for a while.
        card = "02:00:" + ":".join(f"{int(part):02x}" for part in self.address.split("."))
        peer = ("peer", "name", "eth0", "address", card, "netns", self.name)
        _ip("link", "add", self._veth, "type", "veth", *peer)
        _ip("link", "set", self._veth, "master", self._bridge, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def _remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._veth)
        _ip("netns", "del", self.name)


@contextmanager
def some_hosts(count: int, *, net: int = 77) -> Iterator[list[Host]]:
    """Several hosts on a bridge of their own. `net` tells several such networks apart.

    This machine itself is 10.`net`.0.254 there.
    """
    bridge = f"artbr{net}"
    hosts: list[Host] = []
    _remove_leftovers(f"art{net}host", bridge)
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"10.{net}.0.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(1, count + 1):
            hosts.append(Host(f"art{net}host{number}", f"10.{net}.0.{number}", bridge))
        yield hosts
    finally:
        for host in hosts:
            host.remove()
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", bridge)


def _remove_leftovers(prefix: str, bridge: str) -> None:
    """Remove the network that a killed run left. Raises `BadInput` if one that lives uses it."""
    found = _ip("netns", "list").split()
    for name in (word for word in found if word.startswith(prefix)):
        if pids := _ip("netns", "pids", name).split():
            problem = f"{name} is used by process {pids[0]}"
            raise BadInput("net", problem, "end the other run first")
        _ip("netns", "del", name)
    if Path("/sys/class/net", bridge).exists():
        _ip("link", "del", bridge)
