"""Giving up on launches in a pool: the failures that count, and the failure of work that waits for its machines."""

from __future__ import annotations

from resolute_master.domain.change import PoolBelief
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle import allocation_fsm, allocations
from resolute_master.lifecycle.prices import belief_key
from resolute_master.lifecycle.step import Step
from resolute_provisioner import launch_errors
from resolute_provisioner.model import OfferBelief, PoolLaunch


def succeeded(step: Step, instance: Instance) -> None:
    """Records a launch that succeeded. Call it after the facts about its offer have been updated."""
    policy = step.pools.get(instance.pool)
    if policy is not None and policy.scaling is not None:
        _keep(step, instance, launch_errors.after_success(policy.scaling, step.now))


def failed(step: Step, instance: Instance) -> None:
    """Records a launch that failed. Call it after the facts about its offer have been updated."""
    policy = step.pools.get(instance.pool)
    if policy is None or policy.scaling is None:
        return
    beliefs, asked_at = _beliefs(step, instance.pool), instance.requested_at
    outcome = launch_errors.after_failure(policy.scaling, beliefs, instance.offer_id, asked_at=asked_at, now=step.now)
    _keep(step, instance, outcome)
    error = launch_errors.launch_error(policy.scaling, _beliefs(step, instance.pool), step.now)
    if outcome is not None and error is not None:
        reason = f"{error.reason}; no machine is requested until {error.until:%H:%M:%S} UTC (launch_error_timeout)"
        step.decide("launch_error", pool=instance.pool, subject=instance.id, reason=reason)


def give_up(step: Step, id_: AllocationId, reason: str) -> None:
    """Fails an allocation that waits for machines that cannot be launched."""
    allocations.move(step, id_, allocation_fsm.LaunchGivenUp(reason=reason))


def _beliefs(step: Step, pool: PoolName) -> dict[str, OfferBelief]:
    return {known.belief.offer_id: known.belief for known in step.find(PoolBelief, "beliefs_of_pool", pool)}


def _keep(step: Step, instance: Instance, outcome: PoolLaunch | None) -> None:
    if outcome is not None:
        known = step.need(PoolBelief, belief_key(instance.pool, instance.offer_id))
        step.put(replace(known, belief=replace(known.belief, pool_launch=outcome)))
