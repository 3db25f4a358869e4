"""The record of a cycle for a replay: commands, time, entropy, adopted entities, digest."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter

import msgspec

from resolute_master.domain.change import KIND_OF, KINDS, Change, Entity, key_of
from resolute_master.domain.commands import COMMANDS, Command
from resolute_master.domain.effects import Effect
from resolute_master.lifecycle.cluster import ClusterState, sortable
from resolute_master.store.encoding import (
    UnreadableValue,
    decode,
    decode_effect,
    decode_entity,
    decode_plain,
    encode_effect,
    encode_entity,
    encode_telling,
    from_plain,
    with_bodies,
)


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(order="deterministic")


def written_down(command: Command) -> tuple[Command, bytes]:
    """The command as a replay reads it, and its form in the journal. The rules get the command as in a replay: times in UTC, and
    numbers that JSON cannot express as strings. Raises one of `VALUE_ERRORS` for a command without a stored form."""
    body, as_it_is = encode_telling(command)
    if not as_it_is:
        command = decode(type(command), body)
    return command, b'{"body":%s,"type":"%s"}' % (body, type(command).__name__.encode())


def journaled(written: Sequence[bytes]) -> bytes:
    """The commands of one cycle, each from `written_down`."""
    return b"[%s]" % b",".join(written)


def decode_commands(body: bytes) -> tuple[Command, ...]:
    return tuple(from_plain(COMMANDS[row["type"]], row["body"]) for row in decode_plain(body))


def encode_entities(entities: Iterable[Entity]) -> bytes:
    return _listed((entity, encode_entity(entity)) for entity in entities)


def _listed(entities: Iterable[tuple[Entity, bytes]]) -> bytes:
    return _encoder().encode([[KIND_OF[type(e)], msgspec.Raw(body)] for e, body in entities])


def decode_entities(body: bytes) -> tuple[Entity, ...]:
    rows = msgspec.json.decode(body, type=list[tuple[str, msgspec.Raw]])
    return tuple(decode_entity(kind, bytes(raw)) for kind, raw in rows)


class StateWriter:
    """The whole memory of the engine as the body of a snapshot, at most one entity or effect a step of the iteration.

    It is the state at the moment of its creation; later changes do not affect it. It is compressed, because configurations are
    similar.
    """

    def __init__(self, state: ClusterState) -> None:
        self._tables = state.tables()
        self._outbox = dict(state.outbox)
        self._deflate = zlib.compressobj(level=1)
        self._parts: list[bytes] = []

    def __iter__(self) -> Iterator[None]:
        self._put(b'{"entities":[')
        first = True
        for kind, entities in self._tables:
            keyed: list[tuple[tuple[int, str], Entity]] = []
            for entity in entities:
                keyed.append((sortable(key_of(entity)), entity))
                yield
            keyed.sort(key=itemgetter(0))
            for _, entity in keyed:
                self._put(b'%s["%s",%s]' % (b"" if first else b",", kind.encode(), encode_entity(entity)))
                first = False
                yield
        self._put(b'],"outbox":[')
        for number, key in enumerate(sorted(self._outbox)):
            self._put(b"%s%s" % (b"," if number else b"", encode_effect(self._outbox[key])))
            yield
        self._put(b"]}")
        self._parts.append(self._deflate.flush())

    def _put(self, text: bytes) -> None:
        part = self._deflate.compress(text)
        if part:
            self._parts.append(part)

    @property
    def body(self) -> bytes:
        """The body, once the iteration has ended."""
        return b"".join(self._parts)


def encode_state(state: ClusterState) -> bytes:
    """The whole memory of the engine at once."""
    writer = StateWriter(state)
    for _ in writer:
        pass
    return writer.body


class _State(msgspec.Struct):
    entities: msgspec.Raw
    outbox: list[msgspec.Raw]


def decode_state(body: bytes) -> ClusterState:
    """The state of a snapshot. Raises `UnreadableValue` for a body that is not one."""
    try:
        stored = msgspec.json.decode(zlib.decompress(body), type=_State)
    except (zlib.error, msgspec.DecodeError) as error:
        raise UnreadableValue(f"a snapshot cannot be read: {error}") from error
    outbox: list[Effect] = [decode_effect(bytes(raw)) for raw in stored.outbox]
    return ClusterState(decode_entities(bytes(stored.entities)), outbox)


def chain(previous: str, change: Change, plans: Sequence[object]) -> str:
    """Digest of all decisions so far: of the previous digest, this cycle's plans, and its change."""
    assert set(KINDS) >= {kind for kind, _ in change.deletes}
    digest = hashlib.sha256(previous.encode())
    digest.update(_encoder().encode(plans))
    digest.update(_listed(with_bodies(change)))
    digest.update(_encoder().encode(change.deletes))
    for effect in change.outbox_added:
        digest.update(encode_effect(effect))
    digest.update(_encoder().encode(change.outbox_removed))
    digest.update(_encoder().encode(change.decisions))
    digest.update(_encoder().encode(change.logs))
    return digest.hexdigest()
