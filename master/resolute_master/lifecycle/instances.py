"""Machines of elastic pools: from the recorded intent to the end of the bill.

The row is stored first: an instance with the goal RUN is the order to launch it, one with the goal STOP the order to end it,
repeated by the reconciler until the cloud agrees. `apply_plan` stores the decisions of `plan_scale`; the other functions record
the cloud's reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from resolute.wire.states import NoticeKind
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Entity, PoolBelief
from resolute_master.domain.commands import RecordLaunch, RecordObservation, RecordRefusal
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import RecordBootFailure, RecordStray
from resolute_master.lifecycle import agents, allocations, launch_errors
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.prices import belief_key, offer_price
from resolute_master.lifecycle.step import Step
from resolute_provisioner import risk
from resolute_provisioner.model import (
    InstanceNotice,
    InstanceView,
    Intent,
    Launch,
    Observed,
    Offer,
    OfferBelief,
    PoolScaling,
    RefusalKind,
    Resident,
    ScalePlan,
    Termination,
)

# -------------------------------------------------------------------------------------------------- for the planner


def views(step: Step, pool: PoolName) -> tuple[InstanceView, ...]:
    """The pool's machines in the form of inputs of a scaling decision."""
    return tuple(view(step, i) for i in step.find(Instance, "instances_of_pool", pool) if not i.over)


def view(step: Step, instance: Instance) -> InstanceView:
    """The view of a machine. It depends on the instance, its agent and the allocations with a container on it: see `concerned`."""
    agent = _agent_of(step, instance)
    held = (
        [a for a in step.find(Allocation, "allocations_on_agent", agent.id) if not a.ended] if agent is not None else []
    )
    here = [c for a in held for c in a.containers if agent is not None and c.agent == agent.id and not c.ended]
    in_use = [index for c in here for index in c.slots]
    usable = agent.usable_slots if agent is not None else frozenset[int]()
    notice = instance.notice
    return InstanceView(
        instance_id=instance.id,
        token=instance.token,
        offer_id=instance.offer_id,
        slots=instance.slots if agent is None else len(usable),
        intent=instance.intent,
        observed=instance.observed,
        requested_at=instance.requested_at,
        launched_at=instance.launched_at,
        joined_at=instance.joined_at,
        agent_connected=agent is not None and agent.connected,
        disconnected_since=agent.disconnected_at if agent is not None else instance.unreachable_since,
        slots_in_use=len(in_use),
        closed_slots_in_use=sum(index not in usable for index in in_use),
        aux_in_use=sum(not c.slots for c in here),
        occupants=tuple(sorted(a.id for a in held)),
        residents=tuple(_residents(held, agent)) if agent is not None else (),
        idle_since=instance.idle_since,
        notice=InstanceNotice(kind=notice.kind, deadline=notice.deadline, reason=notice.reason) if notice else None,
        draining_since=instance.draining_since,
        disabled=agent is not None and (agent.draining or not agent.enabled),
        reserved_for=instance.gangs,
    )


def _residents(held: Iterable[Allocation], agent: Agent) -> Iterator[Resident]:
    for allocation in sorted(held, key=lambda allocation: allocation.id):
        containers = [c for c in allocation.containers if not c.ended]
        slots = sum(len(c.slots) for c in containers if c.agent == agent.id)
        if slots and not allocation.leaving and allocation.assigned_at is not None:
            alone = all(c.agent == agent.id for c in containers)
            movable = allocation.movable and alone
            yield Resident(
                token=allocation.id,
                slots=slots,
                since=allocation.assigned_at,
                movable=movable,
                likelihood=allocation.worth.likelihood,
            )


def concerned(step: Step, entities: Iterable[Entity]) -> set[InstanceId]:
    """Machines whose view may differ when these entities do."""
    found: set[InstanceId | None] = set()
    used: set[AgentId] = set()
    for entity in entities:
        match entity:
            case Instance():
                found.add(entity.id)
            case Agent():
                found.add(entity.instance_id)
            case Allocation():
                used.update([container.agent for container in entity.containers])
            case _:
                pass
    found.update([agent.instance_id for id_ in used if (agent := step.get(Agent, id_)) is not None])
    return {id_ for id_ in found if id_ is not None}


def beliefs(state: Step | ClusterState, pool: PoolName) -> dict[str, OfferBelief]:
    return {b.belief.offer_id: b.belief for b in state.find(PoolBelief, "beliefs_of_pool", pool)}


def trust_configuration_again(step: Step) -> None:
    """At a start of the master, whose configuration may have changed: offers that a cloud called wrong are requested again once,
    and a pool that had given up launches again. Shortages and quotas do not depend on the configuration, and stay recorded."""
    for known in step.all(PoolBelief):
        belief = risk.forget(known.belief) if known.belief.misconfigured else known.belief
        belief = replace(belief, pool_launch=None)
        if belief != known.belief:
            step.put(replace(known, belief=belief))


def apply_plan(step: Step, scaling: PoolScaling, plan: ScalePlan) -> None:
    offers = {offer.offer_id: offer for offer in scaling.offers}
    for launch in plan.launches:
        _record_launch(step, PoolName(scaling.pool), offers[launch.offer_id], launch)
    for termination in plan.terminations:
        _record_termination(step, termination)


def _record_launch(step: Step, pool: PoolName, offer: Offer, launch: Launch) -> None:
    number = step.next_number(f"instance:{pool}")
    id_ = InstanceId(f"{pool}-{number}-{step.ids.uuid()[:8]}")
    step.put(
        Instance(
            id=id_,
            pool=pool,
            token=step.ids.uuid(),
            offer_id=offer.offer_id,
            slots=offer.slots,
            price_per_hour=offer_price(step, pool, offer),
            requested_at=step.now,
            reason=launch.reason,
            gangs=launch.gang_tokens,
            offer=offer,
        )
    )
    step.decide("launch", pool=pool, subject=id_, reason=launch.reason)


def _record_termination(step: Step, termination: Termination) -> None:
    instance = step.need(Instance, InstanceId(termination.instance_id))
    if termination.drain and instance.draining_since is not None:
        return
    idle_since = instance.idle_since
    _learn(step, instance, lambda belief: risk.ordered(belief, termination, now=step.now, idle_since=idle_since))
    if termination.drain:
        _drain(step, instance, termination.reason)
    else:
        stop(step, instance, termination.reason)


def _drain(step: Step, instance: Instance, reason: str) -> None:
    """Drains a machine. The plan ends it when it is empty or the drain has taken too long."""
    step.put(replace(instance, draining_since=step.now))
    _stop_placing(step, instance)
    step.decide("drain", pool=instance.pool, subject=instance.id, reason=reason)
    agent = _agent_of(step, instance)
    for allocation, _ in agents.containers_on(step, agent.id) if agent is not None else ():
        allocations.preempt(step, allocation.id, f"its machine is given back: {reason}")


def stop(step: Step, instance: Instance, reason: str) -> None:
    """Orders the end of a machine, whatever runs on it."""
    if instance.intent is Intent.STOP:
        return
    step.put(replace(instance, intent=Intent.STOP, stop_reason=reason, stopped_at=step.now))
    _stop_placing(step, instance)
    step.decide("terminate", pool=instance.pool, subject=instance.id, reason=reason)


def _stop_placing(step: Step, instance: Instance) -> None:
    agent = _agent_of(step, instance)
    if agent is not None:
        step.put(replace(agent, draining=True))


# ------------------------------------------------------------------------------------------------ the cloud's word


def launched(step: Step, command: RecordLaunch) -> None:
    instance = step.get(Instance, command.instance)
    if instance is None or instance.over:
        return
    if instance.launched_at is None:
        _learn(step, instance, lambda belief: risk.launched(belief, now=step.now))
        launch_errors.succeeded(step, instance)
    step.put(
        replace(
            instance,
            provider_id=command.provider_id,
            launched_at=instance.launched_at or step.now,
            # A repeated launch may be answered with a machine that has ended; until when it is paid only the list says.
            observed=max(instance.observed, min(command.observed, Observed.STOPPING, key=_order), key=_order),
            observed_at=step.now,
            paid_from=command.paid_from or instance.paid_from,
        )
    )


def _order(observed: Observed) -> int:
    return observed.order


def refused(step: Step, command: RecordRefusal) -> None:
    """Records that the cloud refused the launch; nothing is paid. The next plan launches again when the offer may be requested."""
    instance = step.get(Instance, command.instance)
    if instance is None or instance.over:
        return
    _learn_refusal(step, instance, command.kind, command.message)
    step.put(
        replace(
            instance,
            observed=Observed.GONE,
            observed_at=step.now,
            intent=Intent.STOP,
            refused=command.message or command.kind,
        )
    )
    step.decide("refused", pool=instance.pool, subject=instance.id, reason=f"{command.kind}: {command.message}")


def observed(step: Step, command: RecordObservation) -> None:
    instance = step.get(Instance, command.instance)
    if instance is None or instance.over:
        return
    seen = replace(
        instance,
        provider_id=command.provider_id or instance.provider_id,
        observed=max(instance.observed, command.observed, key=lambda o: o.order),
        observed_at=step.now,
        paid_from=command.paid_from or instance.paid_from,
        paid_until=command.paid_until or instance.paid_until or _last_seen(step, instance, command),
    )
    step.put(seen)
    if seen.over:
        _gone(step, seen, command)


def _last_seen(step: Step, instance: Instance, command: RecordObservation) -> datetime | None:
    """The end of the bill of a machine that has ended, if the cloud does not report it."""
    paid = command.paid_from is not None or instance.paid_from is not None
    return step.now if command.observed is Observed.GONE and paid else None


def _gone(step: Step, instance: Instance, command: RecordObservation) -> None:
    word = "lost" if instance.intent is Intent.RUN else "gone"  # a machine that was ordered to end is no loss
    _learn_end(step, instance, command)
    if instance.intent is Intent.RUN:
        said = instance.notice.reason if instance.notice else command.message
        reason = said or "the machine vanished without notice"
        step.put(replace(instance, intent=Intent.STOP, stop_reason=reason, stopped_at=step.now))
    agent = _agent_of(step, instance)
    if agent is not None:
        agents.lose(step, agent.id, f"the cloud reports that instance {instance.id} is gone", word=word)
    else:
        step.decide(word, pool=instance.pool, subject=instance.id, reason="the cloud reports that it is gone")


def _learn_end(step: Step, instance: Instance, command: RecordObservation) -> None:
    """Updates the facts about the offer after the end of a machine: a cloud may also refuse by ending a machine that it had begun
    to launch."""
    wanted, noticed = instance.intent is Intent.RUN, instance.notice
    if instance.joined_at is not None:
        interrupted = wanted or (noticed is not None and noticed.kind is NoticeKind.INTERRUPTION)
        exposure_s = (step.now - instance.joined_at).total_seconds()
        _learn(step, instance, lambda b: risk.ended(b, exposure_s=exposure_s, interrupted=interrupted, now=step.now))
    elif wanted and command.refusal is not None:
        _learn_refusal(step, instance, command.refusal, command.message)
    elif wanted:
        _learn(step, instance, lambda belief: risk.never_joined(belief, now=step.now))


def _learn_refusal(step: Step, instance: Instance, kind: RefusalKind, message: str) -> None:
    asked_at, token = instance.requested_at, instance.token
    _learn(step, instance, lambda b: risk.refused(b, kind, message, asked_at=asked_at, now=step.now, token=token))
    launch_errors.failed(step, instance)


def boot_failed(step: Step, command: RecordBootFailure) -> None:
    """Records that a machine will never join, seconds after the failure instead of at the boot timeout. Repeated calls are
    harmless."""
    instance = step.get(Instance, command.instance)
    if instance is None or instance.over or instance.joined_at is not None or instance.intent is Intent.STOP:
        return
    _learn(step, instance, lambda belief: risk.never_joined(belief, now=step.now))
    stop(step, instance, f"its boot failed ({command.stage}): {command.message}")


def stray(step: Step, command: RecordStray) -> None:
    """Records a stray, which the caller ends. If it belongs to a request that counted as refused or as ended, its row is
    reopened, so that the ledger contains it and it counts against the pool's maximum while it exists."""
    instance = _named_by_tags(step, command)
    # If the agent had joined, the loss was detected in other ways, too, and the work has moved: it is only ended.
    if instance is None or not instance.over or instance.joined_at is not None:
        step.decide("stray", pool=command.pool, subject=command.provider_id, reason=_why_only_ended(instance))
        return
    price = _price_now(step, instance)
    before = f"the cloud had refused it ({instance.refused})" if instance.refused else "it was taken for gone"
    reason = f"{before}, and it was there all the same"
    step.put(
        replace(
            instance if price is None else instance.at_price(price, step.now),
            provider_id=command.provider_id,
            observed=min(command.observed, Observed.STOPPING, key=_order),
            observed_at=step.now,
            launched_at=instance.launched_at or step.now,
            paid_from=command.paid_from or instance.paid_from,
            paid_until=None,
            refused="",
            intent=Intent.STOP,
            stop_reason=reason,
            stopped_at=step.now,
            found_again_at=step.now,
        )
    )
    step.decide("stray", pool=command.pool, subject=instance.id, reason=f"{reason}: it is ended")


def _price_now(step: Step, instance: Instance) -> float | None:
    """The present price of a machine whose price moved while the master did not follow it; None for others."""
    return offer_price(step, instance.pool, instance.offer) if instance.offer and instance.price_moves else None


def _named_by_tags(step: Step, command: RecordStray) -> Instance | None:
    """The row of a stray: both of its tags match it."""
    id_ = command.instance_id
    found = step.get(Instance, id_) if id_ is not None and command.token else None
    return found if found is not None and (found.pool, found.token) == (command.pool, command.token) else None


def _why_only_ended(instance: Instance | None) -> str:
    if instance is None:
        return "a machine with our tag and without a request was ended"
    if not instance.over:
        return f"a second machine for the request of {instance.id} was ended"
    return f"the machine of {instance.id}, whose agent had joined, counted as gone but still existed: it was ended"


# ------------------------------------------------------------------------------------------------------ its agent


def joined(step: Step, instance: Instance, agent: Agent) -> None:
    if instance.joined_at is None:
        _learn_join(step, instance, brought=len(agent.slots))
        instance = replace(instance, joined_at=step.now, agent_id=agent.id, idle_since=step.now)
        step.put(instance)
    elif instance.unreachable_since is not None:
        # What had no work before has had none meanwhile: it has been idle since then.
        instance = replace(instance, unreachable_since=None)
        step.put(instance)
    if instance.intent is Intent.STOP or instance.draining_since is not None:
        _stop_placing(step, instance)


def _learn_join(step: Step, instance: Instance, *, brought: int) -> None:
    """Updates the facts about the offer after a machine has joined. `brought`: the slots that its agent has found, in use or
    not."""
    took_s, promised = (step.now - instance.requested_at).total_seconds(), instance.slots
    if brought < promised and not _holds_what_it_is_for(step, instance, brought):
        _learn(step, instance, lambda b: risk.joined_short(b, brought=brought, promised=promised, now=step.now))
    else:
        _learn(step, instance, lambda belief: risk.joined(belief, join_time_s=took_s, now=step.now))


def _holds_what_it_is_for(step: Step, instance: Instance, slots: int) -> bool:
    """Whether each pending allocation for which it was launched fits on it, or exactly on several like it."""
    for token in instance.gangs:
        allocation = step.get(Allocation, AllocationId(token))
        if allocation is None or allocation.assigned_at is not None or allocation.ended:
            continue
        needed = allocation.slots_needed
        if needed > slots and (allocation.single_node or slots == 0 or needed % slots):
            return False
    return True


def agent_given_up(step: Step, instance: Instance, since: datetime) -> None:
    """Records a machine whose agent has been out of contact for longer than its tasks' lease. The machine itself may still run
    and cost."""
    if instance.joined_at is not None and not instance.over:
        step.put(replace(instance, unreachable_since=since, idle_since=instance.idle_since or step.now))


def refresh_idle(step: Step, touched: Iterable[Instance]) -> None:
    """Start or end the idle time of machines whose occupation may have changed."""
    for instance in touched:
        agent = _agent_of(step, instance)
        if instance.over or instance.joined_at is None:
            continue
        busy = agent is not None and bool(agents.containers_on(step, agent.id))
        idle_since = instance.idle_since
        if busy and idle_since is not None:
            if idle_since < step.now:
                _learn_use(step, instance, idle_since)
            step.put(replace(instance, idle_since=None))
        elif not busy and idle_since is None:
            step.put(replace(instance, idle_since=step.now))


def _learn_use(step: Step, instance: Instance, idle_since: datetime) -> None:
    _learn(step, instance, lambda belief: risk.used_again(belief, idle_since, now=step.now))


def _agent_of(step: Step, instance: Instance) -> Agent | None:
    found = step.find(Agent, "agent_of_instance", instance.id)
    return found[0] if found else None


def _learn(step: Step, instance: Instance, update: Callable[[OfferBelief], OfferBelief]) -> None:
    key = belief_key(instance.pool, instance.offer_id)
    known = step.get(PoolBelief, key)
    belief = known.belief if known is not None else OfferBelief(offer_id=instance.offer_id)
    learnt = update(belief)
    if learnt != belief:
        step.put(PoolBelief(id=key, pool=instance.pool, belief=learnt))
