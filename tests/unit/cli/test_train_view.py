"""The lines of a run while it goes."""

from artangram.cli.train_view import acts_of, busy_of
from artangram.pipeline.meter import ActionUsage, Acts


def an_act(act_s, count=1):
    return Acts(count=count, act_s=act_s, wait_s=0.25, run_s=act_s - 0.25)


def test_the_kinds_that_took_most_come_first_and_the_rest_is_left_out():
    kinds = {"b": an_act(1.0, count=9), "a": an_act(2.0), "c": an_act(0.5)}
    kinds |= {f"small-{n}": an_act(0.3) for n in range(9)}
    said = acts_of(ActionUsage(kinds=kinds))
    assert said.startswith("b 1.00 s (waited 0.25), a 2.00 s (waited 0.25), c 0.50 s")
    assert said.count("waited") == 4


def test_nothing_ran_and_nothing_is_said():
    assert acts_of(ActionUsage()) == busy_of(ActionUsage()) == ""


def test_what_is_at_work_is_a_share_where_the_whole_is_known():
    usage = ActionUsage(busy={"cpu": 1.5, "search": 12.0}, capacity={"cpu": 2.0, "devices": 1.0})
    assert busy_of(usage) == "cpu 75 % of 2, devices 0 % of 1, search 12.0"
