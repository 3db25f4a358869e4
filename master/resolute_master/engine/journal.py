"""What a cycle leaves behind so that it can be run again: commands, time, entropy, adopted entities, digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from resolute_master.domain.change import KIND_OF, KINDS, Change, Entity
from resolute_master.domain.commands import COMMANDS, Command
from resolute_master.domain.effects import Effect
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.store.encoding import (
    decode_effect,
    decode_entity,
    decode_plain,
    encode_effect,
    encode_entity,
    encode_plain,
    from_plain,
    to_plain,
)


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(order="deterministic")


def encode_commands(commands: Sequence[Command]) -> bytes:
    """With numbers that JSON cannot spell as words, as in the entities: a replay sees what the rules saw."""
    return encode_plain([{"type": type(c).__name__, "body": to_plain(c)} for c in commands])


def decode_commands(body: bytes) -> tuple[Command, ...]:
    return tuple(from_plain(COMMANDS[row["type"]], row["body"]) for row in decode_plain(body))


def encode_entities(entities: Iterable[Entity]) -> bytes:
    return _encoder().encode([[KIND_OF[type(e)], msgspec.Raw(encode_entity(e))] for e in entities])


def decode_entities(body: bytes) -> tuple[Entity, ...]:
    rows = msgspec.json.decode(body, type=list[tuple[str, msgspec.Raw]])
    return tuple(decode_entity(kind, bytes(raw)) for kind, raw in rows)


def encode_state(state: ClusterState) -> bytes:
    """The whole memory of the engine: the body of a snapshot."""
    effects = [msgspec.Raw(encode_effect(state.outbox[key])) for key in sorted(state.outbox)]
    return _encoder().encode({"entities": msgspec.Raw(encode_entities(state.entities())), "outbox": effects})


class _State(msgspec.Struct):
    entities: msgspec.Raw
    outbox: list[msgspec.Raw]


def decode_state(body: bytes) -> ClusterState:
    stored = msgspec.json.decode(body, type=_State)
    outbox: list[Effect] = [decode_effect(bytes(raw)) for raw in stored.outbox]
    return ClusterState(decode_entities(bytes(stored.entities)), outbox)


def chain(previous: str, change: Change, plans: Sequence[object]) -> str:
    """Digest of everything decided so far: the one before, this cycle's plans, and what it changes."""
    assert set(KINDS) >= {kind for kind, _ in change.deletes}
    digest = hashlib.sha256(previous.encode())
    digest.update(_encoder().encode(plans))
    digest.update(encode_entities(change.upserts))
    digest.update(_encoder().encode(change.deletes))
    for effect in change.outbox_added:
        digest.update(encode_effect(effect))
    digest.update(_encoder().encode(change.outbox_removed))
    digest.update(_encoder().encode(change.decisions))
    digest.update(_encoder().encode(change.logs))
    return digest.hexdigest()
