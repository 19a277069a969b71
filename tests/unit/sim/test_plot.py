"""The picture: the right points, few of them, the same bytes every time."""

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib._pylab_helpers import Gcf
from msgspec import structs
from sim_support import CPU, a_cpu_cluster, a_trace, a_trajectory, a_turn, an_action, simulated

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.sim.figure import COLOURS
from artangram.sim.plot import LEAST_S, MOST_BINS, MOST_POINTS, Curves, curves, plot

POOLS = ("cpu", "gpu", "search", "score")


def some_curves(policy: str, *, jitter: float = 0.1) -> Curves:
    """As many points as a long simulation gives."""
    act = tuple((0.1 * 1.07**i + jitter * (i % 3), 1 - i / MOST_POINTS) for i in range(MOST_POINTS))
    use = tuple((10.0 * i, (i * 0.37 + jitter) % 1.0) for i in range(MOST_BINS))
    return Curves(
        policy=policy,
        act_mean_s=1.0,
        act=act,
        utilisation={Resource(name): use for name in POOLS},
    )


def test_the_tail_says_what_share_of_actions_took_at_least_so_long():
    turns = [a_turn(0, an_action(float(work_s))) for work_s in (4, 1, 3, 2)]
    one = curves(simulated(a_trace(a_trajectory("a", *turns)), a_cpu_cluster(1)), "fcfs")
    assert one.act == ((1.0, 1.0), (2.0, 0.75), (3.0, 0.5), (4.0, 0.25))
    assert one.act_mean_s == pytest.approx(2.5)


def test_a_long_simulation_is_thinned_but_keeps_its_ends_and_its_area():
    turns = [a_turn(0.5, an_action(0.01 * n)) for n in range(1, 2001)]
    simulation = simulated(a_trace(a_trajectory("a", *turns)), a_cpu_cluster(1))
    one = curves(simulation, "fcfs")
    assert len(one.act) <= MOST_POINTS
    assert one.act[0] == (pytest.approx(0.01), 1.0)
    assert one.act[-1] == (pytest.approx(20.0), pytest.approx(1 / 2000))
    use = one.utilisation[CPU]
    assert len(use) <= MOST_BINS
    mean = sum(share for _, share in use) / len(use)
    assert mean == pytest.approx(simulation.machine.use[CPU].mean_share(simulation.now), rel=0.05)


def test_times_of_zero_have_a_place_on_a_logarithmic_axis():
    trace = a_trace(a_trajectory("a", a_turn(0, an_action(0.0), an_action(1.0))))
    assert curves(simulated(trace, a_cpu_cluster(1)), "fcfs").act[0][0] == LEAST_S


def test_an_svg_is_small_valid_and_names_every_policy_and_pool(tmp_path: Path):
    policies = [f"policy-{n}" for n in range(9)]
    target = tmp_path / "many.svg"
    plot([some_curves(name) for name in policies], target, lower_bound_s=0.5, title="A title")
    text = target.read_text()
    assert len(text) < 350_000
    assert ElementTree.fromstring(text).tag.endswith("svg")
    for words in (*policies, *(f"Utilisation of {pool}" for pool in POOLS), "lower bound"):
        assert words in text
    for words in ("A title", "action completion time, ACT (s)", "simulated time (s)"):
        assert f"<!-- {words} -->" in text


def test_three_policies_on_one_pool_stay_below_100_kb(tmp_path: Path):
    one_pool = [
        Curves(policy=c.policy, act_mean_s=1.0, act=c.act, utilisation={CPU: c.utilisation[CPU]})
        for c in (some_curves("a"), some_curves("b"), some_curves("c"))
    ]
    plot(one_pool, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size < 100_000


def test_the_same_curves_give_the_same_bytes(tmp_path: Path):
    for name in ("a.svg", "b.svg"):
        plot([some_curves("x")], tmp_path / name, lower_bound_s=1.0)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_policies_that_do_the_same_are_both_seen(tmp_path: Path):
    plot([some_curves("first"), some_curves("second")], tmp_path / "x.svg")
    strokes = re.findall(
        r"stroke: (#\w{6}); stroke-width: ([\d.]+)", (tmp_path / "x.svg").read_text()
    )
    widths = [{float(width) for colour, width in strokes if colour == c} for c in COLOURS[:2]]
    assert min(widths[0]) > max(widths[1])


def test_a_png_is_drawn_by_its_suffix(tmp_path: Path):
    plot([some_curves("x")], tmp_path / "x.PNG")
    assert (tmp_path / "x.PNG").read_bytes().startswith(b"\x89PNG")


def test_another_suffix_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="svg"):
        plot([some_curves("x")], tmp_path / "x.gif")


@pytest.mark.parametrize("name", ["$\\frac$ of", "a\\$b", "two\nlines\0", "\u65e5\u672c", "$"])
def test_a_name_is_drawn_as_it_is_whatever_it_holds(tmp_path: Path, name: str):
    one = some_curves("elastic")
    use = next(iter(one.utilisation.values()))
    plot([structs.replace(one, utilisation={Resource(name): use})], tmp_path / "x.svg", title=name)
    ElementTree.parse(tmp_path / "x.svg")


def test_a_simulation_without_actions_is_drawn(tmp_path: Path):
    idle = simulated(a_trace(a_trajectory("a", a_turn(2.0))), a_cpu_cluster(1))
    plot([curves(idle, "fcfs")], tmp_path / "x.svg")
    assert (tmp_path / "x.svg").exists()


def test_no_global_state_is_left_behind(tmp_path: Path):
    before = dict(mpl.rcParams)
    plot([some_curves("x")], tmp_path / "x.svg")
    assert dict(mpl.rcParams) == before
    assert not Gcf.figs
