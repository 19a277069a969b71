"""Programs as users write them; every line must type-check."""

import artangram
from artangram import ActionResult, Client, Outcome


def tokens(text: str) -> int:
    return len(text.split())


async def asynchronous(client: Client) -> ActionResult:
    async with client.trajectory(job="demo", task="swe", memory_mb=512) as t:
        await t.write("a.txt", "hello")
        async for piece in t.stream(["cat", "a.txt"], timeout_s=5.0):
            if isinstance(piece, ActionResult):
                assert piece.outcome is Outcome.SUCCEEDED
        await client.deploy("judge", "module:load", degrees=(1, 2), options={"size": 1})
        await client.call("judge", {"text": "hello"}, timeout_s=3, trajectory=t.id)
        answer = await client.api("search").get("/q", params={"q": "x"}, job="demo")
        answer.text.upper()
        number: int = await client.function(tokens, kind="count")("a b")
        assert number
        return await t.run(
            ["pytest", "-n", "{units}"],
            cpu=artangram.between(1, 8),
            needs={"api:search": 1},
            environ={"A": "b"},
        )


async def opened() -> None:
    search = artangram.ApiSpec(base_url="https://example.org")
    async with artangram.local(cores=2, devices=1, apis={"search": search}) as client:
        await asynchronous(client)
    async with artangram.connect("http://127.0.0.1:8700", token="secret") as client:
        await asynchronous(client)


def blocking() -> int:
    with artangram.sync.local(cores=2) as client, client.trajectory(memory_mb=64) as t:
        result: ActionResult = t.run(["true"], cpu=artangram.one_of(1, 2, 4))
        for piece in t.stream(["cat"], stdin="hello"):
            print(piece)
        print(result.stdout.upper(), client.status().running)
        return client.function(tokens)("a b")
