"""A machine on which a waiting gang will start is not given back meanwhile, however soon machines of its pool idle."""

from __future__ import annotations

from resolute_master.domain.commands import KillExperiment, PauseExperiment
from resolute_master.domain.ids import ExperimentId
from support.paid_cluster import Habits, PaidCluster, a_paid_pool

IDLE_S = 10.0
LONG_S = 3 * IDLE_S
"""Saving, and the end of a machine, take so long here."""


def two_machines() -> tuple[PaidCluster, ExperimentId, ExperimentId]:
    """A pool that has no more than two, with an experiment on each."""
    pools = a_paid_pool(slots=2, machines=2, idle_s=IDLE_S)
    cluster = PaidCluster(pools, Habits(save_s=lambda: LONG_S, stop_s=LONG_S))
    first, second = cluster.submit(slots=2), cluster.submit(slots=2)
    cluster.run_for(60)
    assert (len(cluster.machines), cluster.running()) == (2, 2)
    return cluster, first, second


def test_while_those_on_the_other_machine_are_leaving() -> None:
    cluster, first, second = two_machines()
    cluster.submit(slots=4)
    cluster.act(KillExperiment(experiment=first))
    cluster.act(PauseExperiment(experiment=second))
    cluster.run_for(2 * LONG_S)
    assert cluster.running() == 2, "the gang runs on both"
    assert len(cluster.machines) == 2, "none was bought again"


def test_while_another_machine_ends_and_makes_room() -> None:
    cluster, first, second = two_machines()
    cluster.act(KillExperiment(experiment=first))
    cluster.run_for(IDLE_S / 2)
    cluster.act(KillExperiment(experiment=second))
    cluster.run_for(IDLE_S)
    cluster.submit(slots=4)  # the first is ending, the second has idled for a while
    cluster.run_for(3 * LONG_S)
    assert cluster.running() == 2
    assert len(cluster.machines) == 3, "one in the place of the first, and none in the place of the second"


def test_a_reservation_keeps_no_machine_because_nobody_knows_how_long_it_lasts() -> None:
    cluster, first, second = two_machines()
    cluster.submit(slots=4)
    cluster.act(KillExperiment(experiment=first))
    cluster.run_for(2 * LONG_S)
    assert any("it has been idle for 10 s" in line for line in cluster.decisions)
    cluster.act(KillExperiment(experiment=second))
    cluster.run_for(2 * LONG_S)
    assert cluster.running() == 2
