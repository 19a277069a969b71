"""The async verbs every shell shares."""

import asyncio

import pytest

from artangram.aio import Background, uncancelled

pytestmark = pytest.mark.looptime


async def test_a_clean_up_finishes_although_its_caller_is_cancelled_twice() -> None:
    finished = asyncio.Event()

    async def clean_up() -> None:
        await asyncio.sleep(10)
        finished.set()

    task = asyncio.create_task(uncancelled(clean_up()))
    for _ in range(2):
        await asyncio.sleep(1)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert finished.is_set()


async def test_what_it_returns_and_raises_comes_through() -> None:
    async def value() -> int:
        return 3

    async def trouble() -> None:
        raise ValueError("no")

    assert await uncancelled(value()) == 3
    with pytest.raises(ValueError, match="no"):
        await uncancelled(trouble())


async def test_background_tasks_end_with_their_owner() -> None:
    errors: list[BaseException] = []
    background = Background(errors.append)

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)

    background.start(stubborn())
    background.start(asyncio.sleep(100))
    await asyncio.sleep(1)
    await background.close()
    assert (len(background), errors) == (0, [])


async def test_a_background_failure_is_told() -> None:
    errors: list[BaseException] = []
    background = Background(errors.append)

    async def trouble() -> None:
        raise ValueError("no")

    background.start(trouble())
    await asyncio.sleep(1)
    assert [str(error) for error in errors] == ["no"]
