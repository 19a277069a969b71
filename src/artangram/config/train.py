"""Read a training run from YAML.

```yaml
name: first
model: models/warm              # a directory; see `artangram.models`
cluster: cluster.yaml               # what the tasks may use; this machine's cores if unsaid
engines: 2                      # of our own; or a file about pools of them
tasks:
  calc: {share: 1}              # a task that comes along, by its name
  mine: {task: "my_module:MyTask", share: 2, options: {level: 3}}
  hard: {task: "my_module:MyTask", share: [[0, 1], [40, 3]]}    # 1 at first, 3 from version 40
  swe: {agent: "my_agent:solve", problems: swe.jsonl, reward: "my_agent:score"}    # any agent
  kin: {task: "my_module:MyTask", teachers: [models/teacher]}     # with train: {loss: distillation}
  cli: {command: [mini, --task, "{prompt}"], problems: swe.jsonl, image: swe.tar, reward: "t:run"}
steps: 100
groups: 16
group_size: 8
eval: {every: 20, problems: 64, patience: 3}    # on held-out problems, while the run goes on
train: {lr: 5.0e-4, epochs: 4}
```

The file of engines:

```yaml
pools:                                                  # by hardware class, which is any name
  compute: {vllm: [.venv-vllm/bin/python], devices: ["0", "1"]}     # started and watched: two
  bandwidth: {urls: ["http://10.0.0.7:8000"]}                       # given
affinity: {lake: compute, math: bandwidth}              # or auto, which learns it
split: {code: {prefill: compute, decode: bandwidth}}    # or auto; none if unsaid
```

All other keys are the fields of `RunSettings`. A key that is not known is an error, never ignored.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from artangram.config.cluster import ClusterFile
from artangram.config.clusterfile import blaming, read_cluster
from artangram.config.yamlfile import Item, read_yaml
from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import DEFAULT
from artangram.envs.protocol import Task
from artangram.envs.tasks import DEMO_TASKS, TaskClient
from artangram.observe.badfile import AnyPath, BadFile
from artangram.pipeline.agenttasks import AgentSpec, agent_task
from artangram.pipeline.enginepools import EnginePool, EnginesSpec
from artangram.pipeline.settings import ExamPlan, RunSettings, is_url
from artangram.pipeline.taskfactory import check_made, task_named
from artangram.rollout.source import Stage
from artangram.train.lossrules import LossParts
from artangram.train.settings import TrainSettings

_FIX = "see docs/training.md"
OWN_KEYS = ("model", "cluster", "engines", "tasks")


AGENT_KEYS = AgentSpec.__struct_fields__


class TaskSpec(Struct, frozen=True, kw_only=True):
    """One task of a run."""

    share: int | tuple[tuple[int, int], ...] = 1
    """Its part of the groups of a batch, relative to the shares of the other tasks; for a
    curriculum, pairs of a version and the share from that version on."""
    task: str = ""
    """`module:name` of what makes it, called with the client; the shipped one if unsaid."""
    options: dict[str, Any] = {}
    eval: dict[str, Any] = {}
    """Options that differ for `artangram eval`, so that it asks problems that are held out; for an
    agent, its keys: `eval: {problems: held_out.jsonl}`."""
    train: LossParts = LossParts()
    """What differs from the run's own `train` in the loss of this task."""
    teachers: tuple[str, ...] = ()
    """For `loss: distillation`: directories of models, or URLs of vLLM servers."""
    agent: str = ""
    """`module:name` of an agent, in place of `task`; see `AgentSpec` for the keys below."""
    command: tuple[str, ...] = ()
    image: str = ""
    shows: tuple[str, ...] = ()
    cpu: int = 1
    sandbox: dict[str, Any] = {}
    problems: str = ""
    reward: str = ""
    max_turns: int = 0
    max_tokens: int = 0
    sampling: str = "agent"

    @property
    def is_agent(self) -> bool:
        return bool(self.agent or self.command)

    def agent_spec(self, *, is_exam: bool = False) -> AgentSpec:
        """What its agent is made of. Raises `msgspec.ValidationError` for a bad `eval`."""
        given = {key: getattr(self, key) for key in AgentSpec.__struct_fields__}
        return msgspec.convert({**given, **(self.eval if is_exam else {})}, type=AgentSpec)

    @property
    def exam_options(self) -> dict[str, Any]:
        """The options for `artangram eval`; shipped tasks hold problems out by themselves."""
        return {**({} if self.task else {"held_out": True}), **self.options, **self.eval}

    @property
    def shares(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a version and the share from that version on, beginning with version 0."""
        return ((0, self.share),) if isinstance(self.share, int) else self.share


class TrainSpec(Struct, frozen=True, kw_only=True):
    """A run as its file describes it."""

    run: RunSettings
    model: Path
    tasks: dict[str, TaskSpec]
    cluster: ClusterFile
    engines: EnginesSpec

    @property
    def stages(self) -> list[Stage]:
        """The shares of all tasks, wherever one of them changes."""
        starts = sorted({start for task in self.tasks.values() for start, _ in task.shares})
        return [
            Stage(
                from_version=start,
                shares={
                    name: next(share for since, share in reversed(task.shares) if since <= start)
                    for name, task in self.tasks.items()
                },
            )
            for start in starts
        ]


def read_train(path: AnyPath) -> TrainSpec:
    """The run that a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = document.known([*OWN_KEYS, *RunSettings.__struct_fields__])
    for needed in ("model", "tasks"):
        if needed not in top:
            raise document.bad("is missing", _FIX, key=needed)
    if "eval" in top:
        top["eval"].known(ExamPlan.__struct_fields__)
    if "train" in top:
        top["train"].known([key for key in TrainSettings.__struct_fields__ if key != "tasks"])
    home = Path(path).parent
    tasks = {name: _task(name, item, home) for name, item in top["tasks"].mapping().items()}
    if not tasks:
        raise top["tasks"].bad("is empty", "name at least one task")
    rest = {key: item.plain() for key, item in top.items() if key not in OWN_KEYS}
    own = {name: task.train for name, task in tasks.items() if task.train != LossParts()}
    if own:
        rest["train"] = {**rest.get("train", {}), "tasks": msgspec.to_builtins(own)}
    spec = TrainSpec(
        run=document.converted(RunSettings, rest, fix=_FIX),
        model=home / top["model"].text(),
        tasks=tasks,
        cluster=_live_cluster(home / top["cluster"].text()) if "cluster" in top else ClusterFile(),
        engines=_engines(top["engines"], home) if "engines" in top else EnginesSpec(),
    )
    _check_teachers(spec, top["tasks"].mapping())
    for stage in spec.stages:
        if not any(stage.shares.values()):
            problem = f"has no task with a share at version {stage.from_version}"
            raise top["tasks"].bad(problem, "give one of them 1 or more")
    return spec


def _check_teachers(spec: TrainSpec, items: dict[str, Item]) -> None:
    distils = spec.run.train.loss == "distillation"
    for name, task in spec.tasks.items():
        if distils and not task.teachers:
            fix = "name directories of models or URLs of vLLM servers"
            raise items[name].bad("has none to learn from", fix, key="teachers")
        if task.teachers and not distils:
            fix = "add train: {loss: distillation}"
            raise items[name].bad("are for distillation", fix, key="teachers")


def made_tasks(
    spec: TrainSpec, client: TaskClient, *, job: str, is_exam: bool = False
) -> list[Task]:
    """The tasks of a run, or of its exam. Raises `BadInput`."""
    return [
        agent_task(name, task.agent_spec(is_exam=is_exam), client, job=job)
        if task.is_agent
        else task_named(
            name,
            task.task,
            client,
            job=job,
            options=task.exam_options if is_exam else task.options,
        )
        for name, task in spec.tasks.items()
    ]


def check_tasks(path: AnyPath, spec: TrainSpec, *, is_exam: bool = False) -> None:
    """Raises `BadFile` for a task whose module or name does not exist; imports the modules."""
    for name, task in spec.tasks.items():
        try:
            if task.is_agent:
                agent_task(name, task.agent_spec(is_exam=is_exam), None, job="")
            else:
                check_made(task.task, task.exam_options if is_exam else task.options)
        except BadInput as error:
            item = read_yaml(path).mapping()["tasks"].mapping()[name]
            place = item.mapping().get(error.field, item)
            raise BadFile(path, error.within(f"tasks.{name}"), line=place.line) from error


def _agent(spec: TaskSpec, given: dict[str, Item], item: Item, home: Path) -> TaskSpec:
    """Its files are named from the directory of the run's file."""
    if strange := [key for key in ("task", "options") if key in given]:
        raise given[strange[0]].bad("does not go with an agent", "leave one of them out")
    if "eval" in given:
        given["eval"].known(list(AgentSpec.__struct_fields__))
        told = {key: getattr(spec, key) for key in AGENT_KEYS} | given["eval"].plain()
        given["eval"].converted(AgentSpec, told, fix=_FIX)
    exam = dict(spec.eval)
    if "problems" in exam:
        exam["problems"] = _beside(home, exam["problems"])
    image = str(home / spec.image) if spec.image and "{" not in spec.image else spec.image
    found = structs.replace(spec, problems=_beside(home, spec.problems), image=image, eval=exam)
    item.converted(AgentSpec, {key: getattr(found, key) for key in AGENT_KEYS}, fix=_FIX)
    return found


def _beside(home: Path, named: str) -> str:
    """A file by its path from `home`; `module:name` stays as it is."""
    place = home / named
    return str(place) if named and (place.exists() or ":" not in named) else named


def read_engines(path: AnyPath) -> EnginesSpec:
    """The engines that a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = document.known(EnginesSpec.__struct_fields__)
    values = {key: item.plain() for key, item in top.items() if key != "pools"}
    if "pools" in top:
        pools = {}
        for name, item in top["pools"].mapping().items():
            item.known(EnginePool.__struct_fields__)
            pools[name] = item.converted(EnginePool, item.plain(), fix=_FIX)
        values["pools"] = pools
    return document.converted(EnginesSpec, values, fix=_FIX)


def _live_cluster(path: Path) -> ClusterFile:
    """A cluster that this machine can open."""
    described = read_cluster(path)
    with blaming(path):
        described.options  # noqa: B018 - asked for its complaints.
    return described


def engines_named(said: str) -> EnginesSpec:
    """A number of our own engines, or those that a file describes. Raises `BadInput`."""
    if said.isdecimal():
        return EnginesSpec(pools={DEFAULT: EnginePool(count=int(said))})
    return read_engines(said)


def _engines(item: Item, home: Path) -> EnginesSpec:
    """A number of our own engines, or those that a file describes."""
    value = item.plain()
    if isinstance(value, str):
        return read_engines(home / value)
    pool = item.converted(EnginePool, {"count": value}, fix="say how many, or name a file")
    return EnginesSpec(pools={DEFAULT: pool})


def _task(name: str, item: Item, home: Path) -> TaskSpec:
    given = item.known(list(TaskSpec.__struct_fields__))
    if "train" in given:
        given["train"].known(list(LossParts.__struct_fields__))
    spec = item.converted(TaskSpec, item.plain(), fix=_FIX)
    teachers = tuple(one if is_url(one) else str(home / one) for one in spec.teachers)
    spec = structs.replace(spec, teachers=teachers)
    if spec.is_agent:
        spec = _agent(spec, given, item, home)
    elif stray := [key for key in AGENT_KEYS if key in given]:
        raise given[stray[0]].bad("belongs to an agent", 'add agent: "module:name", or command')
    elif not spec.task and name not in DEMO_TASKS:
        fix = 'add task: "module:name" or agent: "module:name"'
        raise item.bad("is not a shipped task", fix, key="task")
    starts = [start for start, _ in spec.shares]
    if starts[:1] != [0] or starts != sorted(set(starts)):
        fix = "say from which version on, from 0 upwards, as [[0, 3], [40, 1]]"
        raise item.bad(
            f"{list(spec.shares)} does not begin at version 0 and rise", fix, key="share"
        )
    if any(share < 0 for _, share in spec.shares):
        raise item.bad(f"{spec.share} is negative", "give 0 or more", key="share")
    return spec
