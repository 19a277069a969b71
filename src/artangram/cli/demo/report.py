"""The demo's report: the same facts as text for the terminal and as one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING

from artangram.cli.demo.resources import Resources
from artangram.cli.output import write_file
from artangram.cli.page import SMOOTH, Block, Curve, Figure, Section, Tile, page
from artangram.cli.reportparts import act_section, as_text

if TYPE_CHECKING:
    from artangram.cli.demo.session import TrainedModel


def write_report(out: Path, learned: "TrainedModel", resources: Resources) -> str:
    """Write `report.html` and `report.txt`; the text is returned."""
    sections = [_success(learned), _time(learned), act_section(resources.kinds), _static(resources)]
    sentence = _sentence(learned, resources)
    text = "\n".join([sentence, "", *map(as_text, sections), f"This report: {out}/report.html\n"])
    write_file(out / "report.txt", text.encode())
    figure = Figure(
        curves=_curves(learned),
        shows="success per task over steps",
        caption="Success of the attempts that were trained on, per task, mean of "
        f"{SMOOTH} steps. Circles: held-out problems, before and after.",
    )
    blocks: list[Block] = [figure, *sections]
    html = page("Artangram: the demo", sentence, _tiles(learned, resources), blocks)
    write_file(out / "report.html", html.encode())
    return text


def _sentence(learned: "TrainedModel", resources: Resources) -> str:
    last = resources.static[-1]
    if resources.is_reached:
        static = f"With a core per sandbox, actions are as fast on {last.cores} cores"
    else:
        static = (
            "With a core per sandbox, actions are never as fast: "
            f"from {last.cores} cores on, making pods takes the time"
        )
    return (
        f"Success on problems it never saw: {learned.before.success:.2f} before, "
        f"{learned.after.success:.2f} after {len(learned.steps)} steps. {static}; the run had "
        f"{resources.cores}."
    )


def _tiles(learned: "TrainedModel", resources: Resources) -> list[Tile]:
    before, after = learned.before.success, learned.after.success
    return [
        Tile(f"{before:.2f} > {after:.2f}", "success on problems it never saw"),
        Tile(f"{learned.total_s:.0f} s", f"of which {learned.training_s:.0f} s training"),
        Tile(f"{sum(k.count for k in resources.kinds):,}", "actions: tools, tests, calls"),
        Tile(f"{resources.cores} cores", "for all of it"),
    ]


def _curves(learned: "TrainedModel") -> list[Curve]:
    """Success of attempts per task over the steps, and of held-out problems at both ends."""
    tasks = sorted({task for step in learned.steps for task in step.report.rewards})
    return [
        Curve(
            name=task,
            points=tuple(
                (step.step, step.report.rewards[task])
                for step in learned.steps
                if task in step.report.rewards
            ),
            before=learned.before.by_task.get(task),
            after=learned.after.by_task.get(task),
        )
        for task in tasks
    ]


def _success(learned: "TrainedModel") -> Section:
    before, after = learned.before, learned.after
    found = [(task, before.by_task[task], after.by_task[task]) for task in sorted(before.by_task)]
    found.append(("all", before.success, after.success))
    ended = learned.steps[-1].ended if learned.steps else {}
    attempts = ", ".join(f"{n:,} {status.replace('_', ' ')}" for status, n in sorted(ended.items()))
    return Section(
        title="What was learned",
        note=f"Success on held-out problems, {before.problems} attempts each time. "
        f"Attempts during training: {attempts}.",
        rows=[["task", "before", "after"]] + [[t, f"{b:.2f}", f"{a:.2f}"] for t, b, a in found],
        bars=[[min(b, a), max(0.0, a - b)] for _, b, a in found],
        parts=["before", "gained"],
    )


def _time(learned: "TrainedModel") -> Section:
    steps, training_s = learned.steps, learned.training_s
    waited_s, computed_s = sum(s.collect_s for s in steps), sum(s.train_s for s in steps)
    found = [
        ("warm-up by imitation", learned.warmup_s),
        ("training: the trainer waited for attempts", waited_s),
        ("training: the trainer computed", computed_s),
        ("training: all else", max(0.0, training_s - waited_s - computed_s)),
        ("opening, and the tests before and after", _rest_s(learned)),
    ]
    total_s = max(learned.total_s, 1e-9)
    rows = [[what, f"{s:.0f}", f"{100 * s / total_s:.0f} %"] for what, s in found]
    return Section(
        title="Where time went",
        note="Attempts go on while the trainer computes. To take new weights the engine stood "
        f"still for {sum(s.exposed_s for s in steps):.1f} s.",
        rows=[["what", "seconds", "share"], *rows, ["all of it", f"{total_s:.0f}", ""]],
        bars=[*([s / total_s] for _, s in found), []],
        parts=["of all time"],
    )


def _rest_s(learned: "TrainedModel") -> float:
    return max(0.0, learned.total_s - learned.warmup_s - learned.training_s)


def _static(resources: Resources) -> Section:
    each = [
        ("shared, action by action", resources.ours),
        ("shared by the kernel", resources.kernel),
    ]
    each += [("a core per sandbox", static) for static in resources.static]
    longest_s = max(one.act_mean_s for _, one in each) or 1.0
    return Section(
        title="What static provisioning would have needed",
        note=f"The sandbox actions of this run again, in the simulator. {_why(resources)}",
        rows=[["policy", "cores", "mean ACT, ms"]]
        + [[name, str(one.cores), f"{1000 * one.act_mean_s:,.0f}"] for name, one in each],
        bars=[[one.act_mean_s / longest_s] for _, one in each],
        parts=["mean ACT"],
    )


def _why(resources: Resources) -> str:
    """Why the first rows of pods are so slow, from how this run used its sandboxes."""
    use = resources.sandboxes
    share = use.used_s / use.lived_s if use.lived_s else 0.0
    return (
        f"A sandbox was open for {use.lived_s:.1f} s on average and used a core for "
        f"{100 * share:.1f} % of that: the rest is the model's. Up to {use.most_open} were open at "
        "once. With a core reserved for each, an attempt that finds all cores reserved waits until "
        "another attempt ends, not until a command ends; its first action carries that wait. "
        f"With {use.most_open} cores or more none waits, and what is left is making the pod."
    )
