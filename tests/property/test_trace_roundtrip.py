"""What is written is what is read."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.speedup import Amdahl, Power, Table
from artangram.observe.trace import (
    Trace,
    TraceAction,
    TraceTrajectory,
    TraceTurn,
    read_trace,
    write_trace,
)

seconds = st.floats(min_value=0, max_value=1e9)
counts = st.integers(0, 1 << 40)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
amounts = st.sets(st.integers(1, 40), min_size=1, max_size=6).map(lambda x: tuple(sorted(x)))
tables = st.dictionaries(st.integers(1, 99), st.floats(0.1, 99), min_size=1, max_size=4)
speedups = st.one_of(
    st.floats(0, 1).map(Amdahl),
    st.floats(0, 1).map(Power),
    tables.map(lambda points: Table(tuple(sorted(points.items())))),
)


@st.composite
def needs(draw: st.DrawFn) -> Needs:
    bundle = draw(st.dictionaries(names, amounts, min_size=1, max_size=3))
    elastic = draw(st.none() | st.sampled_from(sorted(bundle)))
    return Needs(
        amounts=tuple(bundle.items()),
        elastic=elastic,
        speedup=draw(st.none() | speedups) if elastic is not None else None,
        service=draw(st.none() | names),
    )


actions = st.builds(
    TraceAction,
    kind=names,
    needs=needs(),
    work_s=seconds,
    fail_at_s=st.none() | seconds,
    reward=st.booleans(),
    timeout_s=st.none() | seconds,
    repeatable=st.booleans(),
    priority=st.integers(-10, 10),
    tokens=st.none() | st.integers(0, 10**6),
)
turns = st.builds(
    TraceTurn,
    think_s=seconds,
    prompt_tokens=counts,
    output_tokens=counts,
    actions=st.lists(actions, max_size=3).map(tuple),
)
trajectories = st.builds(
    TraceTrajectory,
    trajectory=names,
    turns=st.lists(turns, min_size=1, max_size=3).map(tuple),
    job=names,
    task=st.text(st.characters(codec="utf-8"), max_size=4),
    step=st.integers(0, 3),
    arrive_s=seconds,
    memory_mb=counts,
)
traces = st.builds(
    Trace,
    name=st.text(st.characters(codec="utf-8"), max_size=8),
    train_s=seconds,
    trajectories=st.lists(
        trajectories, min_size=1, max_size=4, unique_by=lambda x: x.trajectory
    ).map(lambda xs: tuple(sorted(xs, key=lambda x: x.step))),
)


@settings(max_examples=60, deadline=None)
@given(trace=traces, suffix=st.sampled_from([".jsonl", ".jsonl.gz"]))
def test_written_trace_reads_back_equal(trace: Trace, suffix: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        write_trace(path, trace)
        assert read_trace(path) == trace
