"""The `Sleepy` server as a program: `python serving.py PORT ...`; it ends when it is told to.

`--child FILE` starts a process beside and says which; `--fail` ends at once; `--silent` never gets
ready. It dies when it is asked to, and tells what it was started with.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from aiohttp import web
from sleepy import Sleepy


class Program(Sleepy):
    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.read()
        if body == b'"die"':
            print("as you wished", flush=True)
            os._exit(7)
        if body == b'"tell"':
            seen, at = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("AT")
            return web.Response(body=json.dumps({"words": sys.argv[2:], "seen": seen, "at": at}))
        return await super()._complete(request)


async def healthy(request: web.Request) -> web.Response:
    return web.Response(status=503 if "--silent" in sys.argv else 200)


async def main() -> None:
    await Program().open(port=int(sys.argv[1]), more={"/health": healthy})
    await asyncio.Event().wait()


if "--fail" in sys.argv:
    sys.exit("no such model")
if "--child" in sys.argv:
    child = subprocess.Popen(["sleep", "600"])
    Path(sys.argv[sys.argv.index("--child") + 1]).write_text(str(child.pid))
asyncio.run(main())
