"""A cluster on the hosts of `hosts`: the head on the first, an agent on each of the others."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from artangram_bench.hosts import Host

TOKEN = "callers-token"
PATIENCE_S = 120.0
"""Until a program has surely started, on a busy machine, too."""


class HostCluster:
    """See the module. What it starts ends with the power of its host."""

    def __init__(
        self,
        hosts: list[Host],
        folder: Path,
        *,
        described: str = "",
        endpoint: tuple[str, int] | None = None,
        cores: int = 1,
    ) -> None:
        """`described` is the cluster's file; `endpoint` is where agents dial in."""
        self.head, *self.workers = hosts
        self.folder = folder
        self.state = folder / "state"
        self.url = ""
        self._described = described
        self._endpoint = endpoint
        self._cores = str(cores)
        self._join: tuple[str, ...] = ()

    def start_head(self) -> None:
        """Return when it serves."""
        log, told = self.folder / "head.log", self.folder / "serves.json"
        told.unlink(missing_ok=True)
        file = self.folder / "cluster.yaml"
        file.write_text(self._described)
        address = self.head.address
        described = (str(file),) if self._described else ()
        self.head.artangram(
            *("up", *described, "--host", address, "--port", "7410"),
            *("--agents", f"{address}:7411", "--state-dir", str(self.state)),
            *("--cores", self._cores, "--json", str(told)),
            log=log,
            ARTANGRAM_TOKEN=TOKEN,
        )
        self._until(lambda: told.exists() and told.read_text().endswith("}\n"), log)
        self.url = json.loads(told.read_text())["url"]
        line = next(x for x in log.read_text().splitlines() if x.startswith("artangram agent"))
        self._join = tuple(line.split()[1:])

    def start_agent(self, worker: Host, *more: str) -> None:
        """Return when it has joined."""
        log = self.log(worker)
        before = log.read_text().count("joined") if log.exists() else 0
        self.begin_agent(worker, *more)
        self._until(lambda: log.read_text().count("joined") > before, log)

    def begin_agent(self, worker: Host, *more: str) -> None:
        """Start it, and do not wait for it to join."""
        words = list(self._join)
        if self._endpoint is not None:
            words[words.index("--join") + 1] = f"{self._endpoint[0]}:{self._endpoint[1]}"
        worker.artangram(
            *words, "--node", worker.name, "--cores", self._cores, *more, log=self.log(worker)
        )

    def log(self, worker: Host) -> Path:
        return self.folder / f"{worker.name}.log"

    def logs(self) -> list[Path]:
        return [self.log(worker) for worker in self.workers]

    def _until(self, is_so: Callable[[], bool], log: Path) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > give_up_at:
                raise TimeoutError(log.read_text()[-2000:])
            time.sleep(0.05)
