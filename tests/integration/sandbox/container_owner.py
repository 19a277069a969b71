"""A process that owns two containers and waits to be killed. Prints what it owns, in JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from artangram.sandbox import Command, ContainerProvider, HostImage
from artangram.sandbox.namespace.kernel import processes_below


async def main(state_dir: Path) -> None:
    provider = await ContainerProvider.open(state_dir=state_dir)
    boxes = [await provider.create(HostImage()) for _ in range(2)]
    for box in boxes:
        await box.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
    groups = (provider.run_path / "groups").read_text().splitlines()
    pids = [pid for box in boxes for pid in processes_below(box.pid)]
    owned = {"pids": pids, "groups": groups}
    print(json.dumps(owned | {"run": str(provider.run_path)}), flush=True)
    await boxes[0].run(Command(argv=("sleep", "1000"), timeout_s=1000))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
