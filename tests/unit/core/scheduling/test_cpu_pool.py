"""Which cores of a node an action gets: of one NUMA domain where one has enough."""

from builders import CPU, a_cpu

from artangram.core.ids import NodeId
from artangram.core.scheduling.pools.cpu import CpuNode


def a_node() -> CpuNode:
    """Two domains: cores 0 to 3, and 4 to 7."""
    return CpuNode(CPU, NodeId("cpu-0"), a_cpu(cores=8, numa=2))


def test_the_fullest_domain_that_fits_serves_so_that_the_other_stays_whole():
    node = a_node()
    assert node.take(2) == (0, 1)
    assert node.take(2) == (2, 3)
    assert sorted(node.take(4)) == [4, 5, 6, 7]


def test_a_wide_action_gets_one_whole_domain_and_the_rest_of_it_elsewhere():
    assert sorted(a_node().take(6)) == [0, 1, 2, 3, 4, 5]


def test_one_that_grows_stays_in_its_domain_while_that_has_cores():
    node = a_node()
    assert node.take(2, near=5) == (4, 5)
    assert node.take(4, near=5) == (6, 7, 0, 1)
    assert node.take(1, near=5) == (2,)


def test_cores_go_back_to_their_domain():
    node = a_node()
    taken = node.take(6)
    assert node.free_cores() == [6, 7]
    node.give_back(taken[::-1])
    assert node.free_cores() == list(range(8))
    assert sorted(node.take(4, near=6)) == [4, 5, 6, 7]
