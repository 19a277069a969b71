"""A cluster whose services are HTTP engines that cannot sleep: started to come, ended to go."""

import sys
from pathlib import Path

from process_support import is_alive

import artangram
from artangram.orchestrator.callbackends import Vllm
from artangram.orchestrator.client import Client
from artangram.sandbox.fake import FakeProvider
from artangram.services.vllm import LOADER

SERVING = Path(__file__).parents[2] / "conformance" / "services" / "serving.py"


async def deploy(client: Client, name: str, child: Path) -> None:
    argv = [sys.executable, str(SERVING), "{port}", "--child", str(child)]
    await client.deploy(name, LOADER, options={"argv": argv, "weights_mb": 600}, example=0)


def lives(child: Path) -> bool:
    """Does the process live that a server started last?"""
    return is_alive(int(child.read_text()))


async def test_engines_take_turns_on_a_device_that_holds_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    devices = Vllm(count=1, memory_mb=1000)
    async with artangram.local(provider=FakeProvider(), devices=devices) as client:
        await deploy(client, "one", first)
        await deploy(client, "other", second)
        assert not lives(first)
        assert not lives(second)
        assert await client.call("one", 1) == 1
        assert (lives(first), lives(second)) == (True, False)
        assert await client.call("other", [2, 3]) == [2, 3]
        assert (lives(first), lives(second)) == (False, True)
        assert await client.call("one", 4) == 4
    assert not lives(first)
    assert not lives(second)
