"""What callers give wrong is refused by its name, and is nobody else's trouble."""

from typing import Any

import pytest

from artangram.core.errors import BadInput
from artangram.core.records import Outcome
from artangram.sandbox.fake import Console
from artangram.sandbox.protocol import DirectoryImage, HostImage
from artangram.testing.fakes import FakeHouse, fake_house

pytestmark = pytest.mark.looptime

WRONG: list[tuple[str, Any]] = [
    ("stdin", 5),
    ("environ", {"A": 1}),
    ("cwd", 5),
    ("timeout_s", "5"),
    ("memory_mb", 64.0),
    ("keep", "yes"),
    ("kind", 3),
    ("cpu", "2"),
    ("key", 7),
]


async def assert_serves(house: FakeHouse) -> None:
    async with house.trajectory() as other:
        assert (await other.run(["true"])).ok


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[field for field, _ in WRONG])
async def test_an_argument_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    async with fake_house() as house, house.trajectory() as t:
        with pytest.raises(BadInput, match=f"^{field}.*: expected .*, got "):
            await t.run(["cat"], **{field: value})
        await assert_serves(house)


async def test_streams_refuse_what_runs_refuse() -> None:
    async with fake_house() as house, house.trajectory() as t:
        for wrong in ({"stdin": 5}, {"memory": 64}):
            with pytest.raises(BadInput, match=f"^{next(iter(wrong))}: "):
                await anext(t.stream(["cat"], **wrong))


async def test_one_text_is_no_list_of_words() -> None:
    async with fake_house() as house, house.trajectory() as t:
        with pytest.raises(BadInput, match="argv: is one text; give a list of words"):
            await t.run("true")
        with pytest.raises(BadInput, match=r"argv\[1\]: expected `str`, got `int`"):
            await t.run(["sleep", 1])  # type: ignore[list-item]


@pytest.mark.parametrize("field", ["work_s", "timeout_s", "deadline_s"])
@pytest.mark.parametrize("length", [float("nan"), float("inf")])
async def test_what_no_json_says_is_no_length_of_time(field: str, length: float) -> None:
    async with fake_house() as house, house.trajectory() as t:
        with pytest.raises(BadInput, match=f"^{field}: {length} is not a time"):
            await t.run(["true"], **{field: length})  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [[], [""], [b"true"], [5], [["true"]]])
async def test_words_that_are_no_texts_are_refused_by_name(words: Any) -> None:
    async with fake_house() as house, house.trajectory(task="swe") as t:
        with pytest.raises(BadInput, match=r"^argv"):
            await t.run(words)


async def test_words_may_come_one_by_one() -> None:
    async with fake_house() as house, house.trajectory() as t:
        words: Any = (word for word in ("echo", "hello"))
        assert (await t.run(words)).stdout == "hello\n"


async def test_stdin_may_be_a_text() -> None:
    async with fake_house() as house, house.trajectory() as t:
        assert (await t.run(["cat"], stdin="hello")).stdout == "hello"


@pytest.mark.parametrize("wrong", [{"job": 5}, {"task": 5}, {"memory_mb": "64"}, {"disk_mb": 1.5}])
async def test_a_trajectory_is_refused_by_name_too(wrong: dict[str, Any]) -> None:
    async with fake_house() as house:
        with pytest.raises(BadInput, match=f"^{next(iter(wrong))}: "):
            house.trajectory(**wrong)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"network": 5}, "place.limits.network"),
        ({"source": 5}, "place.source"),
        ({"source": DirectoryImage(path=5)}, "place.source.path"),  # type: ignore[arg-type]
        ({"source": HostImage(also=(5,))}, "place.source.also"),  # type: ignore[arg-type]
    ],
    ids=lambda given: str(given),
)
async def test_so_is_what_is_wrong_inside_its_place(wrong: dict[str, Any], field: str) -> None:
    async with fake_house() as house:
        with pytest.raises(BadInput, match=f"^{field}.*: expected "):
            house.trajectory(**wrong)


async def test_files_are_named_by_text_and_hold_bytes() -> None:
    async with fake_house() as house, house.trajectory() as t:
        for path, data in ((5, b""), ("a", 5), ("a", None)):
            with pytest.raises(BadInput, match=r"^(path|data): expected "):
                await t.write(path, data)  # type: ignore[arg-type]
        for path, most in ((5, 1), (b"a", 1), ("a", "1"), ("a", 1.5)):
            with pytest.raises(BadInput, match=r"^(path|max_bytes): expected "):
                await t.read(path, max_bytes=most)  # type: ignore[arg-type]
        await assert_serves(house)


@pytest.mark.parametrize(
    ("field", "value"),
    [("path", 5), ("headers", {"a": 1}), ("body", 5), ("repeatable", "no")],
)
async def test_a_request_to_an_api_is_refused_by_name_too(field: str, value: Any) -> None:
    async with fake_house() as house:
        with pytest.raises(BadInput, match=f"^{field}.*: expected .*, got "):
            await house.api("search").request("GET", **{field: value})


async def test_options_of_calls_are_refused_by_name_too() -> None:
    async with fake_house() as house:
        with pytest.raises(BadInput, match=r"timeout_s: expected `float \| null`, got `str`"):
            await house.call("judge", {}, timeout_s="5")
        with pytest.raises(BadInput, match="degrees"):
            await house.deploy("judge", "module:load", degrees="2")


async def test_a_place_that_fails_in_an_unheard_of_way_fails_its_own_action_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(console: Console, argv: tuple[str, ...]) -> int:
        raise TypeError("a defect of a provider")

    async with fake_house(programs={"broken": broken}) as house, house.trajectory() as t:
        assert (await t.run(["true"])).ok
        result = await t.run(["broken"])
        assert (result.outcome, "a defect" in result.reason) == (Outcome.INFRA_FAILED, True)
        await assert_serves(house)
    assert "a defect of a provider" in caplog.text
