"""Several hosts on one machine: network namespaces on a bridge, each with its own processes.

A host has an address, a process tree, `/dev/shm` and a name of its own. Killing its init is a power
failure; `cut` is a partition. Needs root and iproute2.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from process_support import environ

CAN_MAKE_HOSTS = os.geteuid() == 0 and all(map(shutil.which, ("ip", "unshare")))
WHY_NOT = "needs root, iproute2 and util-linux"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host:
    """One host; `run` starts its init."""

    def __init__(self, name: str, address: str, veth: str) -> None:
        self.name = name
        self.address = address
        self._veth = veth
        self._inits: list[subprocess.Popen[bytes]] = []

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

    def power_off(self) -> None:
        """Everything here ends at once, without a word."""
        for init in self._inits:
            init.kill()
        for init in self._inits:
            init.wait()
        self._inits.clear()

    def cut(self) -> None:
        _ip("link", "set", self._veth, "down")

    def heal(self) -> None:
        _ip("link", "set", self._veth, "up")


@contextmanager
def some_hosts(count: int, *, net: int = 77) -> Iterator[list[Host]]:
    """So many hosts on a bridge of their own. `net` tells several such networks apart."""
    bridge = f"artbr{net}"
    hosts: list[Host] = []
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"10.{net}.0.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(1, count + 1):
            hosts.append(_made(number, net, bridge))
        yield hosts
    finally:
        for host in hosts:
            host.power_off()
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.name)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", bridge)


def _made(number: int, net: int, bridge: str) -> Host:
    name, veth = f"art{net}host{number}", f"art{net}v{number}"
    address = f"10.{net}.0.{number}"
    _ip("netns", "add", name)
    _ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", veth, "master", bridge, "up")
    _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    _ip("-n", name, "link", "set", "eth0", "up")
    _ip("-n", name, "link", "set", "lo", "up")
    return Host(name, address, veth)
