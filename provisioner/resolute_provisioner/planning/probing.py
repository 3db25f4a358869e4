"""One request at a time to an offer that was refused. Pure.

Capacity returns in ones and twos. So after a refusal one machine is requested, and the others when it was granted: a second wave of
refusals costs nothing, and a gang that cannot be completed does not pay for some of its machines. While the request is pending,
nothing else is bought for the waiting work; the answer takes seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from resolute_provisioner import launch_errors
from resolute_provisioner.model import InstanceView, Launch, Note, Observed, OfferBelief, PoolScaling
from resolute_provisioner.risk import Block, on_probation

ANSWER_TIMEOUT_S = 10.0
"""An offer whose single request has no answer for this long is skipped until there is one."""


def asked(instances: Iterable[InstanceView], beliefs: Mapping[str, OfferBelief]) -> dict[str, datetime]:
    """The offers on probation that have a request without an answer, and when it was made. One that was withdrawn is on its way
    to the cloud all the same."""
    probed = {offer_id for offer_id, belief in beliefs.items() if on_probation(belief)}
    found: dict[str, datetime] = {}
    for each in instances if probed else ():
        unanswered = each.observed is Observed.UNKNOWN and each.launched_at is None
        if unanswered and each.offer_id in probed:
            found[each.offer_id] = min(each.requested_at, found.get(each.offer_id, each.requested_at))
    return found


def blocks(
    pool: PoolScaling, asked: Mapping[str, datetime], beliefs: Mapping[str, OfferBelief], now: datetime
) -> dict[str, Block]:
    """The reasons why offers may not be requested for one machine now, by offer id: the decision where work may wait, and the
    purchase, must agree on it."""
    return {**slow(asked, now), **launch_errors.blocks(pool, beliefs, now)}


def slow(asked: Mapping[str, datetime], now: datetime) -> dict[str, Block]:
    """Offers whose answer to a request is overdue."""
    reason = "it was refused before and has not answered to the one request that was made since"
    overdue = {offer_id for offer_id, at in asked.items() if now >= at + timedelta(seconds=ANSWER_TIMEOUT_S)}
    return {offer_id: Block(until=None, reason=reason) for offer_id in sorted(overdue)}


def one_at_a_time(
    launches: Sequence[Launch], beliefs: Mapping[str, OfferBelief], asked: Collection[str]
) -> tuple[list[Launch], list[Note]]:
    """The launches to make now, and notes for gangs whose machines wait for an answer."""
    several = {token for token, count in Counter(t for each in launches for t in each.gang_tokens).items() if count > 1}
    probed = set(asked)
    now: list[Launch] = []
    waiting: dict[str, str] = {}
    for each in launches:
        if not on_probation(beliefs.get(each.offer_id)):
            now.append(each)
        elif each.offer_id not in probed:
            probed.add(each.offer_id)
            now.append(each)
        else:
            waiting.update(dict.fromkeys(each.gang_tokens, each.offer_id))
    # A gang that waits for an answer takes nothing else meanwhile.
    held_back = waiting.keys() & several
    now = [
        each for each in now if on_probation(beliefs.get(each.offer_id)) or not held_back.intersection(each.gang_tokens)
    ]
    text = "waits for the answer of offer {}, which was refused before and gets a request for one machine first"
    return now, [Note(subject=token, text=text.format(offer_id)) for token, offer_id in sorted(waiting.items())]
