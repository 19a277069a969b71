"""`artangram train --print-plan`: what a run comes to, in numbers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from artangram.cli.output import Printer
from artangram.config.cluster import ClusterFile
from artangram.config.train import TrainSpec
from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import DEFAULT
from artangram.observe.badfile import BadFile
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.settings import ExamPlan, RunSettings, is_url
from artangram.train.settings import TrainSettings

PROBE = "The 3 quick brown foxes: a <b> {c}."
"""A text that tokenizers cut in different ways."""

Row = tuple[str, str, str]


def show_plan(spec: TrainSpec, output: Printer) -> None:
    """Print batch arithmetic, trainer, engines, pools of the cluster, and each task's part."""
    title, columns = f"{spec.run.name}: {spec.model}", ["what", "how much", "so"]
    rows = [*_of_run(spec.run), *_of_engines(spec.engines), *_of_cluster(spec.cluster)]
    output.table(title, columns, rows)
    for stage in spec.stages:
        title = f"tasks from version {stage.from_version} on" if stage.from_version else "tasks"
        total = sum(stage.shares.values())
        tasks = [
            [
                name,
                str(share),
                f"{spec.run.groups * share / total:.1f}",
                spec.tasks[name].task or "shipped",
            ]
            for name, share in stage.shares.items()
        ]
        output.table(title, ["task", "share", "groups a step", "made by"], tasks)


def check_plan(file: Path, spec: TrainSpec, *, has_own_cluster: bool) -> None:
    """Raises `BadFile` if the run could not start: its model, its affinity, its cores."""
    from artangram.models.config import context_of
    from artangram.models.loading import load_tokenizer

    try:
        context_of(spec.model)
        load_tokenizer(spec.model)
    except BadInput as error:
        problem = f"{spec.model} is not a model: {error.field} {error.problem}"
        raise BadFile(file, BadInput("model", problem, error.fix)) from error
    for name, described in spec.tasks.items():
        for teacher in described.teachers:
            if not is_url(teacher):
                _check_teacher(file, name, Path(teacher), student=spec.model)
    rules = {"affinity": spec.engines.affinity, "split": spec.engines.split}
    for key, rule in rules.items():
        for task in [] if isinstance(rule, str) else rule:
            if task != DEFAULT and task not in spec.tasks:
                fix = f"say one of {', '.join(spec.tasks)}, or {DEFAULT}"
                raise BadFile(file, BadInput(f"engines.{key}.{task}", "is not a task", fix))
    there, asked = len(os.sched_getaffinity(0)), spec.cluster.cores or 0
    if has_own_cluster and asked > there:
        problem = f"{asked} cores are more than the {there} of this machine"
        fix = f"say {there} or fewer, or use a cluster with --url"
        raise BadFile(file, BadInput("cluster.cores", problem, fix))


def _check_teacher(file: Path, task: str, teacher: Path, *, student: Path) -> None:
    """Raises `BadFile` unless the directory is a model that reads the student's tokens."""
    from artangram.models.config import context_of
    from artangram.models.loading import load_tokenizer

    field = f"tasks.{task}.teachers"
    try:
        has_room = context_of(teacher) >= context_of(student)
        own, other = load_tokenizer(student), load_tokenizer(teacher)
    except BadInput as error:
        problem = f"{teacher} is not a model: {error.field} {error.problem}"
        raise BadFile(file, BadInput(field, problem, error.fix)) from error
    if not has_room:
        problem = f"{teacher} has a shorter context than {student}"
        raise BadFile(file, BadInput(field, problem, "take one with as long a context"))
    if own.vocab_size != other.vocab_size or own.encode(PROBE) != other.encode(PROBE):
        fix = "take a teacher with the student's tokenizer"
        raise BadFile(file, BadInput(field, f"{teacher} has another tokenizer", fix))


def plan_of(spec: TrainSpec) -> dict[str, object]:
    """The run with every default filled in, for programs."""
    return {
        "model": str(spec.model),
        "run": spec.run,
        "tasks": spec.tasks,
        "stages": spec.stages,
        "engines": spec.engines,
        "cluster": spec.cluster,
    }


def _of_run(run: RunSettings) -> list[Row]:
    attempts = f"{run.groups * run.group_size} attempts"
    if run.min_groups is not None and run.min_groups < run.groups:
        attempts += f", {run.min_groups * run.group_size} if waiting costs more"
    kept = f"every {run.checkpoint_every}" if run.checkpoint_every else "none"
    return [
        ("mode", run.mode, f"staleness at most {run.bound.max_staleness}"),
        ("a step", f"{run.groups} x {run.group_size}", attempts),
        ("environments", str(run.environments), f"at most {run.plan.limits.most_held} held"),
        ("the run", f"{run.steps} steps", f"{run.steps * run.groups} problems"),
        ("checkpoints", kept, "" if run.checkpoint_every else "a crash begins anew"),
        ("evaluation", *_of_exams(run.eval)),
        ("trainer", f"{run.train.processes} on {run.train.device}", _together(run.train)),
        ("loss", run.train.loss, f"lr {run.train.lr:g}, {run.train.epochs} epochs"),
    ]


def _of_exams(plan: ExamPlan) -> tuple[str, str]:
    if not plan.every:
        return "none", ""
    ends = [f"ends at {plan.goal:g}"] if plan.goal is not None else []
    ends += [f"ends after {plan.patience} without a new best"] if plan.patience else []
    problems = f"{plan.problems} held-out problems of each task"
    return f"every {plan.every} steps", ", ".join([problems, *ends])


def _of_engines(engines: EnginesSpec) -> list[Row]:
    rows = [
        (
            f"engines: {hardware}",
            f"{pool.size} {'given' if pool.urls else 'vLLM' if pool.vllm else 'ours'}",
            "as many requests as they take" if pool.urls else f"{pool.slots} requests each",
        )
        for hardware, pool in engines.pools.items()
    ]
    if len(engines.pools) > 1:
        rows.append(("affinity", "", _bindings(engines.affinity)))
    if engines.split:
        rows.append(("split", "", _bindings(engines.split)))
    return rows


def _bindings(rules: str | Mapping[str, object]) -> str:
    if isinstance(rules, str):
        return rules
    return ", ".join(f"{task}: {_binding(rule)}" for task, rule in rules.items())


def _binding(rule: object) -> str:
    if isinstance(rule, Mapping):
        return f"read by {rule['prefill']}, written by {rule['decode']}"
    return rule if isinstance(rule, str) else " or ".join(map(str, cast(Sequence[str], rule)))


def _together(train: TrainSettings) -> str:
    if train.processes == 1:
        return "in the run's own process"
    return {"ddp": "a copy of the model each", "fsdp": "a part of the model each"}[train.backend]


def _of_cluster(cluster: ClusterFile) -> list[Row]:
    cores = cluster.cores or len(os.sched_getaffinity(0))
    return [
        ("cluster", f"{cores} cores", f"policy {cluster.policy}"),
        *(("service", service.id, service.loader) for service in cluster.options.services),
        *(
            ("api", name, f"{api.limit} per {api.window_s:g} s")
            for name, api in cluster.options.apis.items()
        ),
    ]
