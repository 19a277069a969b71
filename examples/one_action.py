"""One command in a sandbox, on a core that it has only while it runs."""

import asyncio

import artangram


async def main() -> None:
    async with (
        artangram.local() as client,
        client.trajectory(task="hello", memory_mb=64) as sandbox,
    ):
        result = await sandbox.run(["/bin/sh", "-c", "echo 6 times 7 is $((6 * 7))"])
        print(result.stdout.strip(), f"(waited {result.wait_s:.4f} s, ran {result.run_s:.4f} s)")


if __name__ == "__main__":
    asyncio.run(main())
