"""Keyword arguments that several methods of a client share, each written down once.

- The methods take them as `**options: Unpack[...]`, so editors and type checkers know every name
  and type; a name that does not exist is also refused at run time.
- A keyword that is left out has the default that its description names.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from artangram.sandbox.protocol import Source

Amount = int | Mapping[str, int | Sequence[int]]
"""A number of units, or what `between` and `one_of` return."""


def between(least: int, most: int) -> Mapping[str, int]:
    """Any number of units from `least` to `most`; the action runs faster on more of them."""
    return {"min": least, "max": most}


def one_of(*choices: int) -> Mapping[str, Sequence[int]]:
    """One of these numbers of units; the action runs faster on more of them."""
    return {"choices": list(choices)}


class TrajectoryOptions(TypedDict, total=False):
    """Keywords of `trajectory`."""

    job: str
    """Whose share it counts against. Default: "default"."""
    task: str
    """What kind of problem it attempts. Default: none."""
    problem: str
    """Which problem it attempts; siblings then tell each other how long their commands take.
    Default: none."""
    memory_mb: int
    """Memory of its sandbox; files count as memory. Default: 512."""
    disk_mb: int | None
    """Size of its files. Default: half of the memory, 256 MB at most; 4096 on disk."""
    storage: Literal["memory", "disk"]
    """Where its files are: "disk" costs no memory, and takes some milliseconds more. Default:
    "memory"."""
    processes: int
    """Processes at once. Default: 256."""
    network: bool | str | Sequence[str]
    """What it may reach: a list of hosts, as in `["pypi.org", "*.pythonhosted.org:443"]`, or True
    for every public host, through a proxy (`http_proxy`); "host" for the machine's own network.
    Default: False, nothing."""
    source: Source | None
    """The image or snapshot that it starts from. Default: the programs of the node."""
    provider: str
    """What makes its sandbox: "namespace", "container", or another kind that the cluster has.
    Default: the usual one of its node, or the first that can do what is asked for."""
    workdir: str
    """Where its commands start, and where relative paths begin; made if need be. Default: /work."""
    home: str
    """`HOME` of its commands; made if need be. Default: /work."""
    environ: Mapping[str, str] | None
    """Environment variables of all its commands. Default: none."""
    user: str
    """What its user is called. `root` is the number 0 for programs, without any rights. Default:
    "box"."""
    selector: Mapping[str, str] | None
    """Labels that its node must have, as in `{"disk": "nvme"}`. Default: none."""
    idle_s: float | None
    """Close it when it has had no action for this long. Default: never."""
    lifetime_s: float | None
    """Close it this long after it was opened, whatever it does. Default: never."""
    parent: str | None
    """The trajectory that waits for it. Its actions are refused when everything that holds memory
    waits for such a child: it would wait for ever. Default: none."""
    id: str | None
    """Your own name for it. Default: the task and a random suffix."""


class RunOptions(TypedDict, total=False):
    """Keywords of `run` and `stream`."""

    cpu: Amount
    """Cores: a number, `between(1, 8)` or `one_of(1, 2, 4)`. Default: 1."""
    kind: str | None
    """Actions of one kind share an estimate of how long they take. Default: the trajectory's task
    and what the command runs: `sh -c 'cd repo && pytest -x'` is `pytest`, `git status` is
    `git/status`."""
    timeout_s: float | None
    """Stop the command when it has run for this long with all the cores it can use: less passes on
    fewer cores, and no time at all while it is preempted. Default: after one day."""
    deadline_s: float | None
    """Give up when it has not ended after this long, waiting included. It starts early enough to
    end in time if its job can have the cores. Default: never."""
    priority: int
    """From -10 to 10: those of its job with a lower one go after it, unless they have waited longer
    by an hour per level. Other jobs do not notice. Default: 0."""
    needs: Mapping[str, Amount] | None
    """What the action holds beside cores, as in `{"api:search": 1}`. Default: nothing."""
    speedup: Mapping[str, Any] | None
    """How much faster it runs on more cores, as in `{"amdahl": 0.1}`. Default: learned."""
    work_s: float | None
    """Expected seconds on one core. Default: learned from earlier actions of its kind."""
    repeatable: bool
    """Run it again when infrastructure fails under it, in an empty sandbox if need be. Default:
    False."""
    key: str | None
    """Your own name for the action: the same key twice is the same action, run once. It belongs to
    its job, its trajectory and its request; another one that uses it is refused. Such an action
    also goes on when its caller stops waiting. Default: none."""
    environ: Mapping[str, str] | None
    """Environment variables beside those of the trajectory. Default: none."""
    cwd: str
    """The directory that the command starts in. Default: the trajectory's `workdir`."""
    stdin: bytes | str
    """What the command reads from its standard input. Default: nothing."""
    output_bytes: int
    """Keep at most this much of its output; the rest is dropped and counted. Default: 1 MiB."""
    memory_mb: int
    """Memory of this command. Default: 0, which means all that the trajectory has."""
    disk_mb: int
    """Size of its files. Default: 0, which means all that the trajectory has."""
    processes: int
    """Processes at once. Default: 0, which means all that the trajectory has."""
    keep: bool
    """Leave processes that it started running when it ends. Default: False."""


class StartOptions(TypedDict, total=False):
    """Keywords of `start`."""

    cpu: Amount
    """Cores that it holds while it runs: a number, `between(1, 8)` or `one_of(1, 2, 4)`. Default:
    1."""
    kind: str | None
    """Actions of one kind share an estimate of how long they take. Default: the trajectory's task,
    `start`, and what the command runs."""
    timeout_s: float | None
    """End it when it has run for this long; nothing else in its sandbox ends with it. Default:
    after one day."""
    deadline_s: float | None
    """Give up when it has not ended after this long, waiting included. Default: never."""
    priority: int
    """From -10 to 10: those of its job with a lower one go after it, unless they have waited longer
    by an hour per level. Other jobs do not notice. Default: 0."""
    needs: Mapping[str, Amount] | None
    """What it holds beside cores, as in `{"api:search": 1}`. Default: nothing."""
    work_s: float | None
    """Expected seconds. Default: learned from earlier actions of its kind."""
    environ: Mapping[str, str] | None
    """Environment variables beside those of the trajectory. Default: none."""
    cwd: str
    """The directory that the command starts in. Default: the trajectory's `workdir`."""
    terminal: tuple[int, int] | None
    """Rows and columns of a terminal for it, which then is its stdin, stdout and stderr. Default:
    none, and it has pipes."""


class CallOptions(TypedDict, total=False):
    """Keywords of every call: of a model service, a function or an outside API."""

    kind: str | None
    """Calls of one kind share an estimate of how long they take. Default: what is called."""
    job: str
    """The job whose share the call counts against. Default: "default"."""
    task: str
    """The task it belongs to, for reports. Default: none."""
    problem: str
    """The problem it is about: calls of one kind on one problem are expected to take about as long
    as each other. Default: none."""
    trajectory: str | None
    """The trajectory it belongs to: the call ends with it. Default: none."""
    needs: Mapping[str, Amount]
    """What the call holds beside what it calls. Default: nothing."""
    work_s: float | None
    """Expected seconds. Default: learned from earlier calls of its kind."""
    timeout_s: float | None
    """Stop the call when it has run for this long. Default: never."""
    deadline_s: float | None
    """Give the call up when it has not ended after this long, waiting included. Default: never."""
    priority: int
    """From -10 to 10: those of its job with a lower one go after it, unless they have waited longer
    by an hour per level. Other jobs do not notice. Default: 0."""
    tokens: int | None
    """What it will use of an API that limits tokens, prompt and answer; settled when it ends with
    what the answer says. Default: learned from earlier calls of its kind."""
    key: str | None
    """Your own name for the call: the same key twice is the same call, made once. It belongs to its
    job and its request; another one that uses it is refused. Default: none."""


class ClusterChanges(TypedDict, total=False):
    """Keywords of `reconfigure`."""

    shares: Mapping[str, float]
    """The shares of all jobs that do not have 1."""
    limits: Mapping[str, Any]
    """The limits of all jobs that have some: a `JobLimits` or its fields as a dict."""
    ceilings: Mapping[str, int]
    """Slots of functions: `functions` are workers, `platform` calls behind a URL."""
    apis: Mapping[str, Any]
    """The limits of APIs by name, each as `{"concurrency": 8, "limit": 100, "window_s": 60}`; what
    is left out there has no limit."""


class ServiceOptions(TypedDict, total=False):
    """Keywords of `deploy`: the fields of `Service`."""

    options: Mapping[str, Any]
    """Keyword arguments of the loader, as JSON values. Default: none."""
    weights: Sequence[str]
    """Files that are kept once in memory and handed to the loader. Default: none."""
    degrees: Sequence[int]
    """Numbers of devices that one replica can run on. Default: (1,)."""
    batch: int
    """How many payloads a replica answers together. Default: 8."""
    batch_cost: float | None
    """What one more payload adds to a batch's time, as a share of one alone. Default: measured."""
    runtime_mb: int | None
    """Memory of a replica beside its weights. Default: measured."""
    example: Any
    """A payload that is tried when the service is deployed. Default: none."""
    longest_predict_s: float
    """Replace a replica whose batch takes longer than this. Default: 300."""
    leaves_nothing: bool
    """A replica may load another service of the same loader in the same process. Default: False."""
