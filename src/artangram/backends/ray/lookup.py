"""`ray://...` to the head's address and token, without Ray in the caller's process.

A caller that is connected to Ray already asks through its own connection; others start `resolve`,
which takes a few seconds.
"""

import asyncio
import sys
from importlib.util import find_spec

import msgspec

from artangram.backends.ray.records import Answer, Failed, HeadRecord
from artangram.core.errors import BadInput

SCHEME = "ray://"
ANSWER_S = 60.0


async def find_head(url: str) -> HeadRecord:
    """Of the Ray cluster that `url` names: `ray://auto` or `ray://HOST:PORT`.

    Raises `BadInput` if there is no such cluster or no head on it.
    """
    check_installed(f"artangram.connect({url!r})")
    address = url.removeprefix(SCHEME).rstrip("/")
    if address == "auto" and _is_connected():
        from artangram.backends.ray.cluster import own_head  # Ray is imported already.

        return await asyncio.to_thread(own_head, address)
    return await _asked(address)


def check_installed(what: str) -> None:
    """Raises `ModuleNotFoundError` with one sentence if Ray is missing."""
    found = find_spec("ray")
    if found is None or found.origin is None:  # A directory of this name is not the package.
        problem = f"{what} needs Ray; pip install 'artangram[ray]'"
        raise ModuleNotFoundError(problem, name="ray")


def _is_connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


async def _asked(address: str) -> HeadRecord:
    words = (sys.executable, "-m", "artangram.backends.ray.resolve", address)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(ANSWER_S):
            out, said = await process.communicate()
    except TimeoutError:
        problem = f"the Ray cluster at {address} has not answered for {ANSWER_S:g} s"
        raise BadInput("url", problem, "check the address") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        answer: Answer = msgspec.json.decode(out, type=Answer)
    except msgspec.MsgspecError:
        last = (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        problem = f"Ray could not be asked at {address}: {last}"
        raise BadInput("url", problem, "see `ray status`") from None
    if isinstance(answer, Failed):
        raise answer.error()
    return answer
