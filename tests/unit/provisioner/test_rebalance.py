"""A mere risk of an end moves work only when it has somewhere to go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resolute.wire.states import NoticeKind
from resolute_provisioner.model import Cause, Demand, InstanceNotice, InstanceView, Intent
from resolute_provisioner.planning.markets import REPLACEMENT_PREFIX
from resolute_provisioner.planning.plan import plan_scale
from resolute_provisioner.planning.rebalance import drains
from support.provisioner import NOW, a_pool, joined, starting

RISK = InstanceNotice(kind=NoticeKind.REBALANCE, deadline=None)
AT_RISK = replace(joined("risky", used=2, occupants=("a",)), notice=RISK)
REPLACEMENT = replace(joined("fresh"), reserved_for=(REPLACEMENT_PREFIX + "risky",))


def test_a_machine_at_risk_gets_a_replacement_and_works_on_meanwhile() -> None:
    plan = plan_scale(a_pool(), [AT_RISK], Demand(), {}, NOW)
    assert [launch.gang_tokens for launch in plan.launches] == [(REPLACEMENT_PREFIX + "risky",)]
    assert plan.terminations == ()
    assert drains([AT_RISK]) == ()
    assert drains([AT_RISK, starting("fresh", reserved_for=(REPLACEMENT_PREFIX + "risky",))]) == ()


def test_when_the_replacement_is_there_the_work_moves_to_it() -> None:
    (drain,) = drains([AT_RISK, REPLACEMENT])
    assert (drain.instance_id, drain.cause, drain.drain) == ("risky", Cause.NOTICE, True)
    assert "fresh replaces it" in drain.reason
    draining = replace(AT_RISK, draining_since=NOW)
    assert drains([draining, REPLACEMENT]) == (), "once"
    plan = plan_scale(a_pool(), [draining, REPLACEMENT], Demand(), {}, NOW)
    assert (plan.launches, plan.terminations) == ((), ()), "the replacement is kept until the work comes"


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param(replace(REPLACEMENT, slots=1), id="too small"),
        pytest.param(replace(REPLACEMENT, notice=RISK), id="at risk itself"),
        pytest.param(replace(REPLACEMENT, slots_in_use=1), id="in use"),
        pytest.param(replace(REPLACEMENT, agent_connected=False), id="away"),
        pytest.param(replace(REPLACEMENT, intent=Intent.STOP), id="ending"),
        pytest.param(replace(REPLACEMENT, disabled=True), id="closed"),
    ],
)
def test_nothing_leaves_for_a_machine_that_does_not_take_it(unfit: InstanceView) -> None:
    assert drains([AT_RISK, unfit]) == ()


def test_one_replacement_is_for_one_machine() -> None:
    second = replace(AT_RISK, instance_id="risky-2", token="t2")
    assert [drain.instance_id for drain in drains([second, AT_RISK, REPLACEMENT])] == ["risky"]


def test_a_sure_end_is_no_matter_of_replacements() -> None:
    """There the work has been asked to leave already."""
    sure = replace(AT_RISK, notice=InstanceNotice(kind=NoticeKind.INTERRUPTION, deadline=None))
    assert drains([sure, REPLACEMENT]) == ()
