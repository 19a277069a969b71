"""Time that jumps, and environments that wait for each other."""

import asyncio

import pytest

from artangram_bench.simulated.virtualtime import StuckError, run_virtually


def test_a_year_takes_no_time_and_everything_happens_in_order():
    async def main() -> tuple[list[str], float]:
        seen: list[str] = []

        async def say(after_s: float, word: str) -> None:
            await asyncio.sleep(after_s)
            seen.append(word)

        await asyncio.gather(say(3e7, "late"), say(0.5, "early"), say(86_400.0, "then"))
        return seen, asyncio.get_running_loop().time()

    seen, now = run_virtually(main())
    assert seen == ["early", "then", "late"]
    assert now == pytest.approx(3e7)


def test_limits_of_time_hold():
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.sleep(10.0)
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == pytest.approx(5.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning")
def test_waiting_for_nobody_is_an_error_and_not_for_ever():
    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            pass

    with pytest.raises(StuckError):
        run_virtually(main())
