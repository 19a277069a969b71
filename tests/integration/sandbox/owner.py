"""A process that owns sandboxes and waits to be killed. Prints what it owns as one JSON line."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from artangram.sandbox import Command, HostImage, NamespaceProvider
from artangram.sandbox.namespace.kernel import processes_below

NUM_SANDBOXES = 8
NUM_PROCESSES = NUM_SANDBOXES * 2 + NUM_SANDBOXES // 2


async def main(state_dir: Path) -> None:
    provider = await NamespaceProvider.open(state_dir=state_dir)
    boxes = [await provider.create(HostImage()) for _ in range(NUM_SANDBOXES)]
    for box in boxes:
        await box.run(Command(argv=("setsid", "-f", "sleep", "1000"), keep=True))
    running = [
        asyncio.create_task(box.run(Command(argv=("sleep", "1000"), timeout_s=1000)))
        for box in boxes[::2]
    ]
    pids: list[int] = []
    while len(pids) < NUM_PROCESSES:
        await asyncio.sleep(0.01)
        pids = [pid for box in boxes for pid in processes_below(box.pid)]
    groups = (provider.run_path / "groups").read_text().splitlines()
    owned = {"zygote": provider.zygote_pid, "pids": pids, "groups": groups}
    print(json.dumps(owned | {"run": str(provider.run_path)}), flush=True)
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
