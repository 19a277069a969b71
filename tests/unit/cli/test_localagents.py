"""How `artangram up --local` divides a machine."""

import pytest

from artangram.cli.localagents import do_overlap, local_parts
from artangram.managers.machine import MachineInfo


def a_machine(cores: int) -> MachineInfo:
    return MachineInfo(cores=tuple(range(cores)), numa=1, memory_mb=8000)


@pytest.mark.parametrize(
    ("cores", "head_cores", "kept", "parts"),
    [
        (8, None, 2, [(2, 3), (4, 5), (6, 7)]),
        (9, None, 2, [(2, 3, 4), (5, 6), (7, 8)]),
        (4, 1, 1, [(1,), (2,), (3,)]),
        (64, 4, 4, [tuple(range(4, 24)), tuple(range(24, 44)), tuple(range(44, 64))]),
    ],
)
def test_every_core_belongs_to_one_node(
    cores: int, head_cores: int | None, kept: int, parts: list[tuple[int, ...]]
) -> None:
    machine = a_machine(cores)
    found, given = local_parts(machine, 3, head_cores=head_cores)
    assert (found, [part.cores for part in given]) == (kept, parts)
    assert not do_overlap(machine, found, given)


@pytest.mark.parametrize(("cores", "head_cores"), [(1, None), (2, None), (3, None), (4, 4), (2, 8)])
def test_with_too_few_cores_every_node_has_one(cores: int, head_cores: int | None) -> None:
    machine = a_machine(cores)
    kept, given = local_parts(machine, 3, head_cores=head_cores)
    assert 1 <= kept <= cores
    assert [len(part.cores) for part in given] == [1, 1, 1]
    assert do_overlap(machine, kept, given)


def test_memory_is_shared_with_the_head() -> None:
    _, given = local_parts(a_machine(4), 3, head_cores=None)
    assert [(part.node, part.memory_mb) for part in given] == [
        ("local-1", 2000),
        ("local-2", 2000),
        ("local-3", 2000),
    ]
    assert str(given[0]) == "local-1 with core 1 and 2000 MB"
