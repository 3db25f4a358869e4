"""A machine may end before anybody has heard that it was launched: it is booked to its end all the same."""

from __future__ import annotations

from dataclasses import replace

from resolute.ids import SeededIds
from resolute_master.domain.commands import RecordLaunch, RecordObservation
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle import instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import Observed
from support.cluster import an_instance, at

ID = InstanceId("instance-1")


def test_the_answer_to_a_repeated_launch_does_not_close_the_books() -> None:
    asked = replace(an_instance(), provider_id="", launched_at=None, paid_from=None, observed=Observed.UNKNOWN)
    step = Step(ClusterState([asked]), now=at(20), ids=SeededIds(1), sequence=1)
    instances.launched(step, RecordLaunch(instance=ID, provider_id="vm", observed=Observed.GONE, paid_from=at(5)))
    known = step.need(Instance, ID)
    assert (known.over, known.launched_at, known.paid_from) == (False, at(20), at(5))
    word = RecordObservation(instance=ID, provider_id="vm", observed=Observed.GONE, paid_from=at(5), paid_until=at(9))
    instances.observed(step, word)
    gone = step.need(Instance, ID)
    assert (gone.over, gone.paid_from, gone.paid_until) == (True, at(5), at(9))
