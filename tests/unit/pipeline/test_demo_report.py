"""The demo's report says what the run found, and nothing else."""

import re

from step_builder import a_step

from artangram.cli.demo.report import write_report
from artangram.cli.demo.resources import Resources, SandboxUse, Static
from artangram.cli.demo.session import TrainedModel
from artangram.observe.acts import KindAct
from artangram.pipeline.evaluation import Evaluation


def an_evaluation(success):
    return Evaluation(success=success, by_task={"calc": success}, problems=4, failed=0)


def a_run():
    return TrainedModel(
        before=an_evaluation(0.2),
        after=an_evaluation(0.9),
        steps=tuple(a_step(step, step / 4) for step in range(1, 5)),
        warmup_s=3.0,
        training_s=4.0,
        total_s=9.0,
    )


def some_resources(*static):
    kind = KindAct(kind="calc/<b>", count=3, mean_s=0.01, p99_s=0.02, wait_s=0.004, run_s=0.006)
    ours = Static(policy="elastic", cores=2, act_mean_s=0.1)
    return Resources(
        kinds=(kind,),
        cores=2,
        sandboxes=SandboxUse(most_open=40, lived_s=10.0, used_s=0.5),
        ours=ours,
        kernel=Static(policy="overcommit", cores=2, act_mean_s=0.2),
        static=static,
    )


def pods(cores, act_mean_s):
    return Static(policy="pods:1", cores=cores, act_mean_s=act_mean_s)


def test_the_report_names_success_before_and_after(tmp_path):
    text = write_report(tmp_path, a_run(), some_resources(pods(2, 0.4), pods(4, 0.1)))
    assert "0.20 before, 0.90 after 4 steps" in text
    assert "actions are as fast on 4 cores; the run had 2" in text
    assert (tmp_path / "report.txt").read_text() == text


def test_the_report_says_why_pods_are_slow_on_few_cores(tmp_path):
    text = write_report(tmp_path, a_run(), some_resources(pods(2, 0.4), pods(4, 0.1)))
    assert "open for 10.0 s on average and used a core for 5.0 % of that" in text
    assert "Up to 40 were open at once" in text
    assert re.search(r"shared by the kernel +2 +200", text)


def test_what_pods_never_reach_is_not_claimed(tmp_path):
    text = write_report(tmp_path, a_run(), some_resources(pods(512, 0.4)))
    assert "actions are never as fast: from 512 cores on" in text


def test_the_page_shows_the_curve_and_escapes_names(tmp_path):
    write_report(tmp_path, a_run(), some_resources(pods(2, 0.1)))
    page = (tmp_path / "report.html").read_text()
    assert page.count("<polyline") == 1
    assert "calc/&lt;b&gt;" in page


def test_what_time_went_into_adds_up(tmp_path):
    text = write_report(tmp_path, a_run(), some_resources(pods(2, 0.1)))
    found = re.search(r"what +seconds +share\n(.*?)\n\n", text, re.DOTALL)
    *parts, (_, whole) = re.findall(r"^(.*?\S)  +(\d+)", found[1], re.MULTILINE)
    assert len(parts) == 5
    assert sum(int(seconds) for _, seconds in parts) == int(whole) == 9
