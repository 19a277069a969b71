"""Jobs that could preempt each other in a circle, by rank and by share."""

import pytest

from artangram.core.scheduling.policies.catalog import policy
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, stream


@pytest.mark.timeout(60)
def test_three_jobs_that_preempt_each_other_come_to_an_end():
    # At 53 s the first has the smaller rank, the second, too, and the third is behind its share.
    trace = stream("coding", seed=1, steps=1, batch=48)
    cluster = cluster_for("coding", cores=16, squeeze_penalty=0.1)
    simulation = Simulation(trace, cluster, policy("elastic"), beliefs("learned", 0))
    simulation.run()
    assert simulation.tally.failed == 0
