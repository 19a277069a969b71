"""What callers give wrong is refused by its name, and is nobody else's trouble."""

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Any

import pytest

import artangram
from artangram.apis.spec import ApiSpec
from artangram.core.errors import BadInput
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.client import TrajectoryHandle
from artangram.sandbox.fake import Console
from artangram.sandbox.protocol import DirectoryImage, HostImage
from artangram.testing.fakes import FakeCluster, fake_cluster

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


HALF = "\ud800"
"""Half a character, as a careless decoder leaves it behind."""
NO_TEXT = [None, 5, b"x", ["x"], {"a": "x"}, object()]
NO_MAPPING = [5, b"x", "x", ["x"], [["x"]], object(), print]
NO_NUMBER = [b"x", "5", [5], {"a": 5}, object(), True, HALF]
NO_JSON = [object(), print, {"a": {"b": [object()]}}, HALF, {(1, 2): 3}]

Use = Callable[[FakeCluster, Any], Any]
CLUSTER: list[tuple[str, Use, list[Any]]] = [
    ("id", lambda h, wrong: h.trajectory(id=wrong), NO_TEXT[1:]),
    ("job", lambda h, wrong: h.trajectory(job=wrong), NO_TEXT),
    ("task", lambda h, wrong: h.trajectory(task=wrong), NO_TEXT),
    ("memory_mb", lambda h, wrong: h.trajectory(memory_mb=wrong), [None, 1.5, *NO_NUMBER]),
    ("processes", lambda h, wrong: h.trajectory(processes=wrong), [None, 1.5, *NO_NUMBER]),
    ("place.source", lambda h, wrong: h.trajectory(source=wrong), [5, ["x"], {"a": object()}]),
    ("service", lambda h, wrong: h.call(wrong, {}), NO_TEXT),
    ("payload", lambda h, wrong: h.call("judge", wrong), NO_JSON),
    ("needs", lambda h, wrong: h.call("judge", {}, needs=wrong), [None, *NO_MAPPING, HALF]),
    ("trajectory", lambda h, wrong: h.call("judge", {}, trajectory=wrong), NO_TEXT[1:]),
    ("work_s", lambda h, wrong: h.call("judge", {}, work_s=wrong), NO_NUMBER),
    ("code", lambda h, wrong: h.function(wrong), [*NO_TEXT, "x", 1.5]),
    ("timeout_s", lambda h, wrong: h.function(math.sqrt, timeout_s=wrong), NO_NUMBER),
    ("name", lambda h, wrong: h.deploy(wrong, "module:load"), NO_TEXT),
    ("loader", lambda h, wrong: h.deploy("judge", wrong), NO_TEXT),
    ("weights", lambda h, wrong: h.deploy("judge", "module:load", weights=wrong), [5, "x", [5]]),
    ("batch", lambda h, wrong: h.deploy("judge", "module:load", batch=wrong), NO_NUMBER),
    ("name", lambda h, wrong: h.api(wrong), NO_TEXT),
    ("method", lambda h, wrong: h.api("search").request(wrong), NO_TEXT),
    ("path", lambda h, wrong: h.api("search").get(wrong), NO_TEXT),
    ("params", lambda h, wrong: h.api("search").get(params=wrong), NO_MAPPING),
    ("headers", lambda h, wrong: h.api("search").request("GET", headers=wrong), NO_MAPPING),
    ("body", lambda h, wrong: h.api("search").request("GET", body=wrong), [None, 5, "x", HALF]),
    ("json", lambda h, wrong: h.api("search").post(json=wrong), NO_JSON),
    ("job", lambda h, wrong: h.close_job(wrong), NO_TEXT),
    ("action_id", lambda h, wrong: h.explain(wrong), NO_TEXT),
]
RUNS: list[tuple[str, list[Any]]] = [
    ("needs", NO_MAPPING),
    ("speedup", NO_MAPPING),
    ("environ", [*NO_MAPPING, {5: "x"}, {"a": None}]),
    ("cpu", [None, b"x", "5", [5], object(), True, HALF]),
    ("kind", [b"x", ["x"], 5]),
    ("timeout_s", NO_NUMBER),
    ("work_s", NO_NUMBER),
    ("cwd", NO_TEXT),
    ("stdin", [None, 5, ["x"], HALF]),
    ("key", NO_TEXT[1:]),
    ("output_bytes", [None, 1.5, *NO_NUMBER]),
    ("repeatable", [None, 5, "yes"]),
]
OPENINGS: list[tuple[str, Callable[[Any], AbstractAsyncContextManager[Any]], list[Any]]] = [
    ("policy", lambda wrong: artangram.local(policy=wrong), NO_TEXT),
    ("cores", lambda wrong: artangram.local(cores=wrong), [0, -1, 1.5, *NO_NUMBER]),
    ("memory_mb", lambda wrong: artangram.local(memory_mb=wrong), [0, 1.5, *NO_NUMBER]),
    ("max_queued", lambda wrong: artangram.local(max_queued=wrong), [None, -1, *NO_NUMBER]),
    ("state_dir", lambda wrong: artangram.local(state_dir=wrong), [5, b"x", ["x"], object()]),
    ("provider", lambda wrong: artangram.local(provider=wrong), [5, "x", ["x"], object()]),
    ("shares", lambda wrong: artangram.local(shares=wrong), [*NO_MAPPING, {"a": "x"}, {5: 1}]),
    ("devices", lambda wrong: artangram.local(devices=wrong), [None, *NO_NUMBER]),
    ("workers", lambda wrong: artangram.local(workers=wrong), [0, -1, *NO_NUMBER]),
    ("platform_calls", lambda wrong: artangram.local(platform_calls=wrong), [0, -1, *NO_NUMBER]),
    (
        "device_memory_mb",
        lambda wrong: artangram.local(devices=1, device_memory_mb=wrong),
        [0, -1, *NO_NUMBER],
    ),
    ("functions", lambda wrong: artangram.local(functions=wrong), [None, 5, "x", [5]]),
    ("services", lambda wrong: artangram.local(services=wrong), [None, 5, "x", [5], ["x"]]),
    ("apis", lambda wrong: artangram.local(apis=wrong), [*NO_MAPPING, {"s": 5}]),
    (
        "apis",
        lambda wrong: artangram.local(apis={"s": ApiSpec(base_url="http://a", limit=wrong)}),
        NO_NUMBER,
    ),
    (
        "services",
        lambda wrong: artangram.local(services=(artangram.Service(id="a", loader=wrong),)),
        NO_TEXT,
    ),
    ("url", lambda wrong: artangram.connect(wrong), [*NO_TEXT, "", "here", "http://", "ftp://a"]),
    ("token", lambda wrong: artangram.connect("http://a", token=wrong), [*NO_TEXT[1:], "", HALF]),
    (
        "beat_s",
        lambda wrong: artangram.connect("http://a", beat_s=wrong),
        [None, "5", 0, -1, math.nan, math.inf],
    ),
]


def every(table: list[Any]) -> list[Any]:
    """One case for each wrong value of a table."""
    return [
        pytest.param(*use, wrong, id=f"{use[0]}-{type(wrong).__name__}-{n}")
        for *use, values in table
        for n, wrong in enumerate(values)
    ]


async def asked(use: Use, client: FakeCluster, wrong: Any) -> None:
    """Some verbs are awaited; of the others nothing is heard after they return."""
    answer = use(client, wrong)
    if isawaitable(answer):
        await answer


@pytest.mark.parametrize(("field", "use", "wrong"), every(CLUSTER))
async def test_what_a_cluster_is_asked_wrongly_is_refused_by_name(
    field: str, use: Use, wrong: Any
) -> None:
    async with fake_cluster() as client:
        with pytest.raises(BadInput) as refused:
            await asked(use, client, wrong)
        assert refused.value.field.startswith(field)
        await assert_serves(client)


@pytest.mark.parametrize(("field", "wrong"), every(RUNS))
async def test_what_a_run_is_asked_wrongly_is_refused_by_name(field: str, wrong: Any) -> None:
    async def streamed(t: TrajectoryHandle) -> None:
        async for _ in t.stream(["true"], **{field: wrong}):
            pass

    runs: list[Callable[[TrajectoryHandle], Awaitable[Any]]]
    runs = [lambda t: t.run(["true"], **{field: wrong}), streamed]
    async with fake_cluster() as client, client.trajectory() as t:
        for run in runs:
            with pytest.raises(BadInput) as refused:
                await run(t)
            assert refused.value.field.startswith(field)
        await assert_serves(client)


@pytest.mark.parametrize("wrong", [None, 5, 1.5, object(), "true", b"true", [None], [["true"]]])
async def test_a_command_is_a_list_of_words(wrong: Any) -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        for asked in (t.run(wrong), anext(t.stream(wrong))):
            with pytest.raises(BadInput, match=r"^argv"):
                await asked


@pytest.mark.parametrize(("field", "opened", "wrong"), every(OPENINGS))
async def test_a_cluster_that_is_opened_wrongly_is_refused_by_name(
    field: str, opened: Callable[[Any], AbstractAsyncContextManager[Any]], wrong: Any
) -> None:
    with pytest.raises(BadInput) as refused:
        async with opened(wrong):
            pass
    assert refused.value.field.startswith(field)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("timeout_s", wrong) for wrong in NO_NUMBER[:-1]),
        *(("memory_mb", wrong) for wrong in NO_NUMBER[:-1]),
        *(("url", wrong) for wrong in NO_TEXT[1:]),
        *(("name", wrong) for wrong in NO_TEXT[1:]),
        ("idempotent", None),
    ],
)
def test_a_function_that_is_marked_wrongly_is_refused_by_name(field: str, wrong: Any) -> None:
    with pytest.raises(BadInput, match=f"^{field}: "):
        artangram.function(**{field: wrong})(math.sqrt)


async def test_a_stream_takes_what_a_run_takes() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        given: dict[str, Any] = {"stdin": "hello", "environ": None, "needs": None}
        printed = [piece async for piece in t.stream(["cat"], **given)]
        assert printed[-1].stdout == "hello"  # type: ignore[union-attr]


async def assert_serves(client: FakeCluster) -> None:
    async with client.trajectory() as other:
        assert (await other.run(["true"])).ok


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[field for field, _ in WRONG])
async def test_an_argument_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        with pytest.raises(BadInput, match=f"^{field}.*: expected .*, got "):
            await t.run(["cat"], **{field: value})
        await assert_serves(client)


async def test_streams_refuse_what_runs_refuse() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        for wrong in ({"stdin": 5}, {"memory": 64}):
            with pytest.raises(BadInput, match=f"^{next(iter(wrong))}: "):
                await anext(t.stream(["cat"], **wrong))


async def test_one_text_is_no_list_of_words() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        with pytest.raises(BadInput, match="argv: is one text; give a list of words"):
            await t.run("true")
        with pytest.raises(BadInput, match=r"argv\[1\]: expected `str`, got `int`"):
            await t.run(["sleep", 1])  # type: ignore[list-item]


@pytest.mark.parametrize("field", ["work_s", "timeout_s", "deadline_s"])
@pytest.mark.parametrize("length", [float("nan"), float("inf")])
async def test_what_no_json_says_is_no_length_of_time(field: str, length: float) -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        with pytest.raises(BadInput, match=f"^{field}: {length} is not a time"):
            await t.run(["true"], **{field: length})  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [[], [""], [b"true"], [5], [["true"]]])
async def test_words_that_are_no_texts_are_refused_by_name(words: Any) -> None:
    async with fake_cluster() as client, client.trajectory(task="swe") as t:
        with pytest.raises(BadInput, match=r"^argv"):
            await t.run(words)


async def test_a_speedup_needs_a_choice_of_cores() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        with pytest.raises(BadInput, match=r"^speedup: .* cpu=between\(1, 8\)"):
            await t.run(["true"], speedup={"amdahl": 0.1})
        assert (await t.run(["true"], speedup={"amdahl": 0.1}, cpu=artangram.between(1, 2))).ok


async def test_words_may_come_one_by_one() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        words: Any = (word for word in ("echo", "hello"))
        assert (await t.run(words)).stdout == "hello\n"


async def test_stdin_may_be_a_text() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        assert (await t.run(["cat"], stdin="hello")).stdout == "hello"


@pytest.mark.parametrize("wrong", [{"job": 5}, {"task": 5}, {"memory_mb": "64"}, {"disk_mb": 1.5}])
async def test_a_trajectory_is_refused_by_name_too(wrong: dict[str, Any]) -> None:
    async with fake_cluster() as client:
        with pytest.raises(BadInput, match=f"^{next(iter(wrong))}: "):
            client.trajectory(**wrong)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"network": 5}, "network"),
        ({"source": 5}, "place.source"),
        ({"source": DirectoryImage(path=5)}, "place.source.path"),  # type: ignore[arg-type]
        ({"source": HostImage(also=(5,))}, "place.source.also"),  # type: ignore[arg-type]
    ],
    ids=lambda given: str(given),
)
async def test_so_is_what_is_wrong_inside_its_place(wrong: dict[str, Any], field: str) -> None:
    async with fake_cluster() as client:
        with pytest.raises(BadInput, match=f"^{field}.*: expected "):
            client.trajectory(**wrong)


async def test_files_are_named_by_text_and_hold_bytes() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        for path, data in ((5, b""), ("a", 5), ("a", None)):
            with pytest.raises(BadInput, match=r"^(path|data): expected "):
                await t.write(path, data)  # type: ignore[arg-type]
        for path, most in ((5, 1), (b"a", 1), ("a", "1"), ("a", 1.5)):
            with pytest.raises(BadInput, match=r"^(path|max_bytes): expected "):
                await t.read(path, max_bytes=most)  # type: ignore[arg-type]
        await assert_serves(client)


@pytest.mark.parametrize(
    ("field", "value"),
    [("path", 5), ("headers", {"a": 1}), ("body", 5), ("repeatable", "no")],
)
async def test_a_request_to_an_api_is_refused_by_name_too(field: str, value: Any) -> None:
    async with fake_cluster() as client:
        with pytest.raises(BadInput, match=f"^{field}.*: expected .*, got "):
            await client.api("search").request("GET", **{field: value})


async def test_options_of_calls_are_refused_by_name_too() -> None:
    async with fake_cluster() as client:
        with pytest.raises(BadInput, match=r"timeout_s: expected `float \| null`, got `str`"):
            await client.call("judge", {}, timeout_s="5")
        with pytest.raises(BadInput, match="degrees"):
            await client.deploy("judge", "module:load", degrees="2")


async def test_a_place_that_fails_in_an_unheard_of_way_fails_its_own_action_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(console: Console, argv: tuple[str, ...]) -> int:
        raise TypeError("a defect of a provider")

    async with fake_cluster(programs={"broken": broken}) as client, client.trajectory() as t:
        assert (await t.run(["true"])).ok
        result = await t.run(["broken"])
        assert (result.outcome, "a defect" in result.reason) == (Outcome.INFRA_FAILED, True)
        await assert_serves(client)
    assert "a defect of a provider" in caplog.text
