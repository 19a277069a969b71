"""What cells believe after what they have seen."""

import pytest

from artangram.core.ids import ActionId
from artangram.core.scheduling.distribution import bin_of
from artangram.core.scheduling.evidence import MEMORY, Cell, CellHabits

A, B = ActionId("a"), ActionId("b")


def a_cell(*durations_s: float, parent: Cell | None = None) -> Cell:
    cell = Cell(parent, CellHabits(1.0, 0.3))
    for duration_s in durations_s:
        cell.add(bin_of(duration_s))
    return cell


def test_what_nobody_has_seen_takes_about_a_second():
    belief = a_cell().belief()
    assert belief.median_s == pytest.approx(1.0, rel=0.2)
    assert belief.spread == pytest.approx(2.0, rel=0.1)


def test_what_was_seen_is_believed():
    belief = a_cell(*[20.0] * 30).belief()
    assert belief.median_s == pytest.approx(20.0, rel=0.2)
    assert belief.spread < 1.0


def test_a_cell_that_saw_nothing_believes_its_parent():
    parent = a_cell(*[20.0] * 30)
    assert a_cell(parent=parent).belief() is parent.belief()


def test_the_first_sibling_moves_the_belief_and_more_of_them_settle_it():
    parent = a_cell(*[1.0, 3.0, 10.0, 30.0, 100.0] * 10)
    first, third = a_cell(90.0, parent=parent), a_cell(90.0, 88.0, 92.0, parent=parent)
    assert parent.belief().median_s < first.belief().median_s <= third.belief().median_s
    assert third.belief().spread < first.belief().spread < parent.belief().spread


def test_how_alike_siblings_are_is_learned():
    """After some problems whose siblings agreed, the first of another one says more."""
    parent = a_cell(*[1.0, 3.0, 10.0, 30.0, 100.0] * 10)
    alike, apart = CellHabits(1.0, 0.3), CellHabits(1.0, 0.3)
    for n in range(30):
        same, other = Cell(parent, alike), Cell(parent, apart)
        for k in range(4):
            same.add(bin_of(2.0 ** (n % 7)))
            other.add(bin_of(2.0 ** ((n + 3 * k) % 7)))
    assert (alike.weight, alike.width) < (apart.weight, apart.width)
    one, another = Cell(parent, alike), Cell(parent, apart)
    one.add(bin_of(64.0))
    another.add(bin_of(64.0))
    assert one.belief().spread < another.belief().spread


def test_one_that_was_stopped_says_that_it_takes_longer():
    cell = a_cell(*[1.0] * 10)
    before = cell.belief()
    for _ in range(6):
        cell.add_longer(50.0)
    assert sum(cell.belief().chances) == pytest.approx(1.0)
    assert cell.belief().mean_s > 5.0 * before.mean_s


def test_past_everything_believed_it_takes_twice_as_long():
    cell = a_cell(*[1.0] * 200)
    for _ in range(200):
        cell.add_longer(1e5)
    assert cell.belief().median_s > 1e5


def test_one_that_runs_for_long_tells_the_others():
    parent = a_cell(*[1.0, 3.0, 10.0, 30.0, 100.0] * 10)
    cell = a_cell(parent=parent)
    assert cell.reach(A, 60.0)
    assert not cell.reach(A, 61.0)
    assert cell.belief().median_s > parent.belief().median_s
    cell.leave(A)
    cell.leave(B)
    assert cell.belief() is parent.belief()


def test_a_belief_is_made_anew_seldom():
    cell = a_cell()
    news = [cell.add(bin_of(1.0)) for _ in range(100)]
    assert news[:3] == [True, True, True]
    assert sum(news) < 15


def test_old_durations_fade():
    cell = a_cell(*[100.0] * 300, *[1.0] * 600)
    assert cell.count < 2.0 * MEMORY
    assert cell.belief().median_s == pytest.approx(1.0, rel=0.2)
    assert cell.belief().mean_s < 2.0


def test_one_that_lies_far_off_hardly_matters():
    cell = a_cell(*[0.05] * 40)
    before = cell.belief().rank_s(0.0)
    cell.add(bin_of(3600.0))
    assert cell.belief().rank_s(0.0) == pytest.approx(before, rel=0.1)


def test_durations_at_the_ends_of_the_scale_are_kept():
    for extreme in (1e-9, 1e12):
        assert sum(a_cell(extreme, extreme).belief().chances) == pytest.approx(1.0)
