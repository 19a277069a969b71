"""Versions of the weights, and the one definition of stale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.core.errors import BadInput
from artangram.core.rollout.weights import PRESETS, Order, Staleness, Versions, is_stale, preset


@pytest.mark.parametrize(
    ("oldest", "current", "alpha", "stale"),
    [
        (3, 3, 0, False),
        (2, 3, 0, True),
        (2, 3, 1, False),
        (1, 3, 1, True),
        (None, 99, 0, False),
    ],
)
def test_tokens_are_stale_below_current_minus_alpha(oldest, current, alpha, stale):
    assert is_stale(oldest, current=current, max_staleness=alpha) is stale
    assert Staleness(max_staleness=alpha).is_stale(oldest, current=current) is stale


def test_presets_are_named_after_peers():
    assert set(PRESETS) == {"sync", "one-off", "areal", "rollart"}
    assert preset("sync").max_staleness == 0
    assert preset("rollart").sheds_early
    assert not preset("areal").sheds_early
    assert preset("rollart").order is Order.OLDEST


def test_wrong_staleness_is_refused_with_a_way_out():
    with pytest.raises(BadInput, match="say one of"):
        preset("magic")
    with pytest.raises(BadInput, match="say 0 or more"):
        Staleness(max_staleness=-1)


def test_versions_grow():
    versions = Versions()
    versions.announce(1)
    assert (versions.current, versions.live) == (1, 0)
    versions.go_live(1)
    assert repr(versions) == "<Versions: 1 is current, 1 is live>"
    with pytest.raises(BadInput, match="not newer"):
        versions.announce(1)


@pytest.mark.parametrize("version", [0, 2])
def test_only_announced_versions_go_live_and_none_goes_back(version: int):
    versions = Versions(current=1)
    with pytest.raises(BadInput, match="never go back"):
        versions.go_live(version)


def test_a_version_is_retired_when_nothing_names_it():
    versions = Versions()
    versions.hold(0, "replica-a")
    versions.announce(1)
    versions.announce(2)
    assert versions.retire() == ()
    versions.go_live(2)
    assert versions.retire() == (1,)
    versions.let_go(0, "replica-a")
    assert versions.retire() == (0,)
    assert versions.retire() == ()


def test_a_retired_version_cannot_be_held():
    versions = Versions()
    versions.announce(1)
    versions.go_live(1)
    versions.retire()
    versions.let_go(0, "anybody")
    with pytest.raises(BadInput, match="retired"):
        versions.hold(0, "late")


moves = st.lists(
    st.tuples(st.sampled_from(["step", "hold", "let_go"]), st.integers(0, 5), st.integers(0, 2)),
    min_size=5,
    max_size=60,
)


@given(moves)
def test_what_is_needed_is_never_retired(moves):
    versions = Versions()
    known = [0]
    held: set[tuple[int, str]] = set()
    for move, number, who in moves:
        version, owner = known[number % len(known)], f"replica-{who}"
        if move == "hold":
            versions.hold(version, owner)
            held.add((version, owner))
        elif move == "let_go":
            versions.let_go(version, owner)
            held.discard((version, owner))
        else:
            versions.announce(versions.current + 1)
            known.append(versions.current)
            versions.go_live(versions.current - number % 2)
            gone = versions.retire()
            needed = {version for version, _ in held}
            assert set(gone) == {v for v in known if v < versions.live} - needed
            known = [version for version in known if version not in gone]
