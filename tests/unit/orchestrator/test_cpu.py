"""How a lease of cores becomes a run on a machine."""

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.lease import Calls, Cores, CoreShare, Lease
from artangram.core.scheduling.needs import parse_needs
from artangram.managers.agent import Run, SandboxSpec
from artangram.managers.cpu import LONGEST_RUN_S, CpuManager
from artangram.managers.machine import MachineInfo, parse_cores, this_machine
from artangram.sandbox import Command

CPU, NODE = Resource("cpu"), NodeId("cpu-0")


class Told:
    """Remembers what an agent is told."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.resized: list[tuple[str, tuple[int, ...]]] = []
        self.stopped: list[str] = []

    def start(self, run: Run) -> None:
        self.runs.append(run)

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        self.resized.append((action_id, cores))

    def stop(self, action_id: ActionId) -> None:
        self.stopped.append(action_id)


def started(manager: CpuManager, *allocations: Cores | CoreShare | Calls, **fields: object) -> None:
    action = Action(
        id=ActionId("a"),
        kind="x",
        needs=parse_needs({"cpu": 1}),
        trajectory=TrajectoryId("t"),
        **fields,  # type: ignore[arg-type]
    )
    lease = Lease(action_id=action.id, allocations=allocations, workers=4)
    command = Command(argv=("make", "-j{units}", "{other}"), environ={"A": "b"})
    manager.start(lease, action, place=SandboxSpec(), command=command, expects_files=False)


def a_manager() -> tuple[CpuManager, Told]:
    told = Told()
    names = {NODE: (8, 9, 12, 13)}
    return CpuManager({NODE: told}, cores=names), told  # type: ignore[dict-item]


def test_cores_get_the_names_the_machine_has_for_them() -> None:
    manager, told = a_manager()
    started(manager, Calls(Resource("search"), 1), Cores(CPU, NODE, (0, 2)))
    manager.resize(ActionId("a"), Cores(CPU, NODE, (3,)))
    (run,) = told.runs
    assert run.command is not None
    assert run.command.cores == (8, 12)
    assert told.resized == [("a", (13,))]


def test_a_command_learns_its_degree_and_keeps_the_rest() -> None:
    manager, told = a_manager()
    started(manager, Cores(CPU, NODE, (0,)), timeout_s=7.0)
    command = told.runs[0].command
    assert command is not None
    assert command.argv == ("make", "-j4", "{other}")
    assert command.environ == {"A": "b", "ARTANGRAM_UNITS": "4"}
    assert (told.runs[0].limit_s, command.timeout_s) == (7.0, LONGEST_RUN_S)


def test_shared_cores_are_any_cores_and_no_limit_is_a_day() -> None:
    manager, told = a_manager()
    started(manager, CoreShare(CPU, NODE, 1000, 4000))
    command = told.runs[0].command
    assert command is not None
    assert (command.cores, command.timeout_s) == ((), LONGEST_RUN_S)


def test_a_node_without_an_agent_is_told_nothing() -> None:
    manager, told = a_manager()
    cores = Cores(CPU, NODE, (0,))
    manager.stop(ActionId("a"), NODE)
    del manager.agents[NODE]
    started(manager, cores)
    manager.resize(ActionId("a"), cores)
    manager.stop(ActionId("a"), NODE)
    assert (told.runs, told.resized, told.stopped) == ([], [], ["a"])


def test_a_kernel_list_of_cores_is_read() -> None:
    assert parse_cores("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert parse_cores("\n") == set()


def test_this_machine_is_a_node() -> None:
    machine = this_machine()
    spec = machine.spec()
    assert (spec.nodes, spec.cores, spec.numa) == (1, len(machine.cores), machine.numa)
    assert spec.memory_mb > 0


def test_a_part_of_a_machine_has_one_domain() -> None:
    machine = MachineInfo(cores=(0, 1, 2, 3), numa=2, memory_mb=100)
    assert (machine.spec(cores=3).numa, machine.spec(cores=9).cores) == (1, 4)
    assert machine.spec(memory_mb=50).memory_mb == 50
