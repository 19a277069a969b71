"""Mistakes as users make them; every marked line must be refused, for the reason that it names."""

import artangram
from artangram import Client
from artangram.sync import SyncClient


def tokens(text: str) -> int:
    return len(text.split())


async def asynchronous(client: Client) -> None:
    artangram.local(core=2)  # E: Unexpected keyword argument "core"
    artangram.local(device=1)  # E: Unexpected keyword argument "device"
    artangram.connect("http://a", tokn="x")  # E: Unexpected keyword argument "tokn"
    _ = artangram.Scheduler  # E: Module has no attribute "Scheduler"
    async with client.trajectory(memory="64") as t:  # E: Unexpected keyword argument "memory"
        await t.run(["true"], timout_s=5)  # E: Unexpected keyword argument "timout_s"
        await t.run(["true"], timeout_s="5")  # E: has incompatible type "str"
        t.stream(["true"], cores=2)  # E: Unexpected keyword argument "cores"
    await client.call("judge", {}, timeout=1)  # E: Unexpected keyword argument "timeout"
    await client.deploy("judge", "m:f", degree=(1,))  # E: Unexpected keyword argument "degree"
    await client.api("search").get(parms={})  # E: Unexpected keyword argument "parms"
    await client.function(tokens, retries=2)("a")  # E: Unexpected keyword argument "retries"
    await client.function(tokens)(5)  # E: has incompatible type "int"


def blocking(client: SyncClient) -> None:
    artangram.sync.local(core=2)  # E: Unexpected keyword argument "core"
    with client.trajectory() as t:
        t.run(["true"], timout_s=5)  # E: Unexpected keyword argument "timout_s"
        _ = t.run(["true"]).stdot  # E: has no attribute "stdot"
        t.stream(["true"], cores=2)  # E: Unexpected keyword argument "cores"
    client.call("judge", {}, timeout=1)  # E: Unexpected keyword argument "timeout"
    client.function(tokens)(5)  # E: has incompatible type "int"
    client.api("search").post(jsn={})  # E: Unexpected keyword argument "jsn"
