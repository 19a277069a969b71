"""What a trace file says is what the records hold, or one line says what is wrong."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.scheduling.speedup import Amdahl
from artangram.observe.trace import (
    BadFile,
    Trace,
    TraceTrajectory,
    TraceTurn,
    open_trace,
    read_trace,
    write_trace,
)

HEADER: dict[str, Any] = {"artangram_trace": 1, "name": "small", "train_s": 60}


def a_line(**changes: Any) -> dict[str, Any]:
    action = {"kind": "swe/tool", "needs": {"cpu": 1}, "work_s": 0.4}
    line = {"job": "coding", "task": "swe", "trajectory": "c-0", "step": 0, "arrive_s": 0.0,
            "memory_mb": 4096, "turns": [{"think_s": 2.1, "actions": [action]}]}  # fmt: skip
    return {**line, **changes}


def an_action_line(**changes: Any) -> dict[str, Any]:
    """A good turn, then one whose second action has these changes."""
    good = {"kind": "swe/tool", "needs": {"cpu": 1}, "work_s": 0.4}
    changed = {key: value for key, value in {**good, **changes}.items() if value is not ...}
    return a_line(turns=[{"actions": [good]}, {"actions": [good, changed]}])


def a_file(tmp_path: Path, *lines: Any, name: str = "t.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def complaint(path: Path) -> str:
    """The one line a person reads, without the directory."""
    with pytest.raises(BadFile) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), path.name)


def test_every_field_of_a_line_arrives(tmp_path):
    test = {"kind": "swe/test", "needs": {"cpu": {"min": 1, "max": 3}}, "elastic": "cpu",
            "work_s": 55.0, "speedup": {"amdahl": 0.03}, "reward": True, "fail_at_s": 9.0,
            "timeout_s": 60.0, "repeatable": True}  # fmt: skip
    call = {"kind": "judge", "needs": {"gpu": {"choices": [2, 4]}}, "work_s": 1, "service": "j"}
    turn = {"think_s": 3.0, "prompt_tokens": 900, "output_tokens": 120, "actions": [test, call]}
    (read,) = read_trace(a_file(tmp_path, HEADER, a_line(turns=[turn]))).trajectories
    assert (read.job, read.task, read.trajectory) == ("coding", "swe", "c-0")
    assert (read.step, read.arrive_s, read.memory_mb) == (0, 0.0, 4096)
    assert (read.turns[0].prompt_tokens, read.turns[0].output_tokens) == (900, 120)
    first, second = read.turns[0].actions
    assert (first.kind, first.work_s, first.fail_at_s) == ("swe/test", 55.0, 9.0)
    assert (first.timeout_s, first.reward, first.repeatable) == (60.0, True, True)
    assert first.needs.of("cpu") == (1, 2, 3)
    assert (first.needs.elastic, first.needs.speedup) == ("cpu", Amdahl(0.03))
    assert (second.needs.service, second.needs.of("gpu")) == ("j", (2, 4))


def test_header_gives_name_and_train_time_before_any_trajectory_is_read(tmp_path):
    with open_trace(a_file(tmp_path, HEADER, "not json")) as reader:
        assert (reader.name, reader.train_s) == ("small", 60.0)


def test_trajectories_stream_in_file_order(tmp_path):
    lines = [a_line(trajectory=f"c-{i}", step=i // 2) for i in range(6)]
    with open_trace(a_file(tmp_path, HEADER, *lines)) as reader:
        assert [(x.trajectory, x.step) for x in reader.trajectories] == [
            (f"c-{i}", i // 2) for i in range(6)
        ]


def test_streaming_yields_what_comes_before_a_bad_line(tmp_path):
    with open_trace(a_file(tmp_path, HEADER, a_line(), "{")) as reader:
        rest = iter(reader.trajectories)
        assert next(rest).trajectory == "c-0"
        with pytest.raises(BadFile):
            next(rest)


def test_equal_needs_are_one_object(tmp_path):
    lines = [a_line(trajectory=f"c-{i}") for i in range(3)]
    read = read_trace(a_file(tmp_path, HEADER, *lines)).trajectories
    assert len({id(x.turns[0].actions[0].needs) for x in read}) == 1


def test_needs_that_differ_only_beside_their_amounts_stay_apart(tmp_path):
    plain = {"kind": "a", "needs": {"gpu": 2}, "work_s": 1}
    beside = [
        {},
        {"elastic": "gpu"},
        {"elastic": "gpu", "speedup": {"amdahl": 0.1}},
        {"elastic": "gpu", "speedup": {"amdahl": 0.2}},
        {"service": "judge"},
    ]
    turn = {"actions": [{**plain, **more} for more in beside]}
    (read,) = read_trace(a_file(tmp_path, HEADER, a_line(turns=[turn]))).trajectories
    needs = [action.needs for action in read.turns[0].actions]
    assert [(x.elastic, x.speedup, x.service) for x in needs] == [
        (None, None, None),
        ("gpu", None, None),
        ("gpu", Amdahl(0.1), None),
        ("gpu", Amdahl(0.2), None),
        (None, None, "judge"),
    ]


def test_blank_lines_are_skipped_but_counted(tmp_path):
    path = a_file(tmp_path, HEADER, "", a_line(), "  ", a_line(step=-1, trajectory="b"))
    assert complaint(path).startswith("t.jsonl:5: step: ")


def test_compressed_trace_reads_as_the_plain_one(tmp_path):
    trace = read_trace(a_file(tmp_path, HEADER, a_line()))
    write_trace(tmp_path / "t.jsonl.gz", trace)
    assert read_trace(tmp_path / "t.jsonl.gz") == trace
    assert gzip.decompress((tmp_path / "t.jsonl.gz").read_bytes()).startswith(b'{"artangram_trace"')


def test_a_file_is_unpacked_by_what_is_in_it_whatever_its_name(tmp_path):
    plain = a_file(tmp_path, HEADER, a_line())
    trace = read_trace(plain)
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(tmp_path / "packed.jsonl") == trace
    assert read_trace(plain.rename(tmp_path / "plain.gz")) == trace


def test_a_mark_of_the_byte_order_is_no_part_of_the_trace(tmp_path):
    path = a_file(tmp_path, HEADER, a_line())
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_trace(path).name == "small"


def test_writing_twice_gives_the_same_bytes(tmp_path):
    trace = read_trace(a_file(tmp_path, HEADER, a_line()))
    write_trace(tmp_path / "a.gz", trace)
    write_trace(tmp_path / "b.gz", trace)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (a_line(stp=1), "t.jsonl:2: stp: unknown field; did you mean step?"),
        (
            a_line(turns=[{"think": 1}]),
            "t.jsonl:2: turns[0].think: unknown field; did you mean thi",
        ),
        (an_action_line(work=1), "turns[1].actions[1].work: unknown field; did you mean work_s?"),
        (an_action_line(kind=...), "t.jsonl:2: turns[1].actions[1].kind: is missing; add it"),
        (an_action_line(work_s=...), "t.jsonl:2: turns[1].actions[1].work_s: is missing; add it"),
        (an_action_line(needs=...), "t.jsonl:2: turns[1].actions[1].needs: is missing; add it"),
        ({"turns": [{}]}, "t.jsonl:2: trajectory: is missing; add it"),
        (a_line(turns=[]), "t.jsonl:2: turns: "),
        (a_line(arrive_s=-1), "t.jsonl:2: arrive_s: expected `float` >= 0.0; give 0 or more"),
        ('{"arrive_s": 1e999}', "arrive_s: number out of range; give a number of fewer digits"),
        (a_line(arrive_s=1e10), "t.jsonl:2: arrive_s: expected `float` <= 1000000000.0; give that"),
        (a_line(turns=[{"think_s": 1e10}]), "t.jsonl:2: turns[0].think_s: expected `float` <="),
        (an_action_line(work_s=1e300), "turns[1].actions[1].work_s: expected `float` <= 10000000"),
        (a_line(memory_mb=-1), "t.jsonl:2: memory_mb: "),
        (a_line(step=0.5), "t.jsonl:2: step: "),
        (a_line(turns=[{"think_s": -0.1}]), "t.jsonl:2: turns[0].think_s: "),
        (an_action_line(work_s=-1), "t.jsonl:2: turns[1].actions[1].work_s: "),
        (an_action_line(fail_at_s=-1), "t.jsonl:2: turns[1].actions[1].fail_at_s: "),
        (an_action_line(timeout_s=-1), "t.jsonl:2: turns[1].actions[1].timeout_s: "),
        (an_action_line(work_s="fast"), "t.jsonl:2: turns[1].actions[1].work_s: "),
        (an_action_line(needs={"cpu": 0}), "t.jsonl:2: turns[1].actions[1].needs.cpu: 0 is out"),
        (an_action_line(needs={"cpu": 1.5}), "t.jsonl:2: turns[1].actions[1].needs.cpu: "),
        (an_action_line(needs={}), "t.jsonl:2: turns[1].actions[1].needs: "),
        (an_action_line(needs={"cpu": {"min": 4, "max": 2}}), "actions[1].needs.cpu: min 4 is"),
        (
            an_action_line(needs={"cpu": {"choices": []}}),
            "t.jsonl:2: turns[1].actions[1].needs.cpu",
        ),
        (an_action_line(elastic="gpu"), "t.jsonl:2: turns[1].actions[1].elastic: 'gpu' is not"),
        (an_action_line(elastic="cpu", speedup={"amdahl": 2}), "actions[1].speedup.amdahl: 2 is"),
        ('{"trajectory": "c-0", "turns": [', "t.jsonl:2: json: input data was truncated; "),
        ("nonsense", "t.jsonl:2: json: json is malformed"),
        ('{"trajectory": "c", "turns": [{"think_s": NaN}]}', "t.jsonl:2: json: json is malformed"),
        ('{"trajectory": "c", "turns": [{"think_s": 1e999}]}', "t.jsonl:2: turns[0].think_s: "),
        ("[" * 100_000, "t.jsonl:2: json: "),
    ],
)
def test_bad_line_is_one_complaint_that_names_line_field_and_fix(tmp_path, line, says):
    text = complaint(a_file(tmp_path, HEADER, line))
    assert says in text
    assert "; " in text


TWICE = {
    '"step": 0': ('"step": 0, "step": 1', "step"),
    '"think_s": 2.1': ('"think_s": 2.1, "think_s" :0', "turns[0].think_s"),
    '"work_s": 0.4': ('"work_s": 40, "work_s": 0.4', "turns[0].actions[0].work_s"),
    '"kind": "swe/tool"': ('"reward": false, "kind": "a:b", "kind": "c"', "actions[0].kind"),
    '{"cpu": 1}': ('{"cpu": 1, "cpu": 4}', "turns[0].actions[0].needs.cpu"),
    '"needs": {"cpu": 1}': (
        '"elastic": "cpu", "needs": {"cpu": {"min": 1, "max": 2, "max": 8}}',
        "turns[0].actions[0].needs.cpu.max",
    ),
    '1}, "work_s"': (
        '1}, "elastic": "cpu", "speedup": {"table": {"1": 1, "1": 9}}, "work_s"',
        "turns[0].actions[0].speedup.table.1",
    ),
}
"""What stands in a line, what takes its place, and the field that comes twice then."""


@pytest.mark.parametrize("good", TWICE)
def test_a_key_that_comes_twice_is_a_complaint(tmp_path, good):
    bad, field = TWICE[good]
    line = json.dumps(a_line())
    assert line.count(good) == 1
    said = complaint(a_file(tmp_path, HEADER, line.replace(good, bad)))
    assert said.startswith("t.jsonl:2: ")
    assert f"{field}: comes twice; remove one of them" in said


def test_a_key_that_comes_twice_in_the_header_is_a_complaint(tmp_path):
    header = json.dumps(HEADER).replace("{", '{"train_s": 5, ')
    said = complaint(a_file(tmp_path, header, a_line()))
    assert said == "t.jsonl:1: train_s: comes twice; remove one of them"


def test_defaults_that_are_written_out_are_no_complaint(tmp_path):
    short = {"trajectory": "c-0", "turns": [{"actions": [{"kind": "a", "needs": {"x:y": 1}}]}]}
    short["turns"][0]["actions"][0]["work_s"] = 10
    beside = {"elastic": None, "service": None, "fail_at_s": None, "reward": False}
    long = a_line(job="default", task="", memory_mb=0, turns=[{"think_s": 0, "prompt_tokens": 0}])
    long["turns"][0]["actions"] = [{**short["turns"][0]["actions"][0], **beside}]
    assert (
        read_trace(a_file(tmp_path, HEADER, long)).trajectories
        == read_trace(a_file(tmp_path, HEADER, short)).trajectories
    )


@pytest.mark.parametrize("beside", [{}, {"reward": False}])
def test_endless_nesting_inside_needs_is_a_complaint(tmp_path, beside):
    nested = "[" * 100_000 + "]" * 100_000
    line = json.dumps(an_action_line(needs="HERE", **beside)).replace('"HERE"', nested)
    assert complaint(a_file(tmp_path, HEADER, line)).startswith("t.jsonl:2: ")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "t.jsonl: artangram_trace: the file is empty; begin with"),
        ([HEADER], "t.jsonl:1: trajectories: the file has none; "),
        ([a_line()], "t.jsonl:1: "),
        ([{**HEADER, "artangram_trace": 2}, a_line()], "t.jsonl:1: artangram_trace: version 2 is"),
        ([{"name": "x"}, a_line()], "t.jsonl:1: artangram_trace: is missing; begin with"),
        ([{**HEADER, "train_s": -1}, a_line()], "t.jsonl:1: train_s: "),
        ([{**HEADER, "train_s": 1e300}, a_line()], "t.jsonl:1: train_s: expected `float` <= "),
        ([HEADER, a_line(), a_line()], "t.jsonl:3: trajectory: 'c-0' came before; give"),
        ([HEADER, a_line(step=2), a_line(trajectory="b", step=1)], "t.jsonl:3: step: step 1 comes"),
    ],
)
def test_bad_file_is_one_complaint(tmp_path, lines, says):
    assert complaint(a_file(tmp_path, *lines)).startswith(says)


def test_missing_file_and_directory_are_complaints(tmp_path):
    assert complaint(tmp_path / "no.jsonl").startswith("no.jsonl: file: no such file")
    with pytest.raises(BadFile, match="is a directory"):
        read_trace(tmp_path)


def test_cut_off_and_false_gzip_are_complaints(tmp_path):
    write_trace(tmp_path / "t.gz", read_trace(a_file(tmp_path, HEADER, a_line())))
    whole = (tmp_path / "t.gz").read_bytes()
    for broken in (whole[:-9], whole[: len(whole) // 2], b"plain text\n"):
        (tmp_path / "cut.gz").write_bytes(broken)
        assert complaint(tmp_path / "cut.gz").startswith("cut.gz")


def test_bytes_that_are_not_text_are_a_complaint(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b'{"artangram_trace": 1}\n{"trajectory": "\xff"}\n')
    assert complaint(tmp_path / "t.jsonl").startswith("t.jsonl:2: json: ")


def test_field_name_with_a_line_break_still_gives_one_line(tmp_path):
    assert "unknown field" in complaint(a_file(tmp_path, HEADER, a_line(**{"a\nb": 1})))


def a_trace(*trajectories: TraceTrajectory, train_s: float = 0.0) -> Trace:
    return Trace(name="", train_s=train_s, trajectories=trajectories)


ONCE = TraceTrajectory(trajectory="a", turns=(TraceTurn(),))


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (a_trace(), "trajectories"),
        (a_trace(ONCE, ONCE), "trajectory"),
        (a_trace(ONCE, train_s=math.inf), "train_s"),
        (a_trace(structs.replace(ONCE, arrive_s=math.nan)), "a: times"),
        (a_trace(structs.replace(ONCE, turns=(TraceTurn(think_s=1e10),))), "a: times"),
    ],
)
def test_trace_that_could_not_be_read_back_is_not_written(tmp_path, bad, field):
    with pytest.raises(BadInput) as caught:
        write_trace(tmp_path / "x", bad)
    assert caught.value.field == field
    assert list(tmp_path.iterdir()) == []
