"""A persistent sorted map: deriving a changed one copies a path of small nodes, and the older one stays valid.

A B+ tree. What a derivation or a reading costs can be counted with a `Meter`, so that a test can show that it does not grow
with the size of the map.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct

K = TypeVar("K")
V = TypeVar("V")

FANOUT = 32
"""Entries of a node before it is split: few enough to copy, many enough that trees stay shallow."""
_SPARSE = FANOUT // 4
"""A node with fewer entries is merged with a neighbour that has room."""


class Meter:
    """Counts entries: copied while deriving, visited while reading. Shared by all maps derived from the one it was given to."""

    __slots__ = ("touched",)

    def __init__(self) -> None:
        self.touched = 0


class _Node(Struct, frozen=True, eq=False, gc=False):
    """A leaf holds values; an inner node holds children and, as keys, the smallest key of each."""

    keys: tuple[Any, ...]
    items: tuple[Any, ...]
    leaf: bool


_EMPTY = _Node((), (), True)

Way = Sequence[tuple[_Node, int]]
"""Inner nodes from the root on, each with the place of the child that was taken."""
_NO_WAY: Way = ()


class SortedMap(Struct, Generic[K, V], frozen=True, eq=False, gc=False):
    """Keys of one map must be comparable with each other; iteration is in their order. Without arguments it is empty."""

    _root: _Node = _EMPTY
    _len: int = 0
    meter: Meter | None = None

    @staticmethod
    def of(items: Iterable[tuple[K, V]], *, meter: Meter | None = None) -> SortedMap[K, V]:
        """A map of items with distinct keys, in any order."""
        ordered = sorted(items, key=itemgetter(0))
        half = FANOUT // 2
        nodes = [_leaf(ordered[i : i + half]) for i in range(0, len(ordered), half)]
        while len(nodes) > 1:
            nodes = [_parent(nodes[i : i + half]) for i in range(0, len(nodes), half)]
        return SortedMap(nodes[0] if nodes else _EMPTY, len(ordered), meter)

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        node = self._root
        if self.meter is not None:
            self.meter.touched += 1
        while not node.leaf:
            node = node.items[bisect_right(node.keys, key, 1) - 1]
        keys = node.keys
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            found: V = node.items[at]
            return found
        return None

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[K]:
        for leaf in self._leaves(self._root):
            yield from leaf.keys

    def first_key_from(self, least: object) -> K | None:
        """The smallest key that is not smaller than `least`."""
        node, after = self._root, None
        if self.meter is not None:
            self.meter.touched += 1
        while not node.leaf:
            at = max(bisect_right(node.keys, least) - 1, 0)
            if at + 1 < len(node.keys):
                after = node.keys[at + 1]  # where the next subtree begins
            node = node.items[at]
        at = bisect_left(node.keys, least)
        found: K | None = node.keys[at] if at < len(node.keys) else after
        return found

    def values(self) -> Iterator[V]:
        for leaf in self._leaves(self._root):
            yield from leaf.items

    def items(self) -> Iterator[tuple[K, V]]:
        for leaf in self._leaves(self._root):
            yield from zip(leaf.keys, leaf.items, strict=True)

    def items_from(self, least: object) -> Iterator[tuple[K, V]]:
        """The items whose key is not smaller; `least` need not be a key, only comparable with one."""
        path: list[tuple[_Node, int]] = []
        node = self._root
        while not node.leaf:
            at = max(bisect_right(node.keys, least) - 1, 0)
            path.append((node, at))
            node = node.items[at]
        at = bisect_left(node.keys, least)
        yield from zip(node.keys[at:], node.items[at:], strict=True)
        for parent, below in reversed(path):
            for child in parent.items[below + 1 :]:
                for leaf in self._leaves(child):
                    yield from zip(leaf.keys, leaf.items, strict=True)

    def key_list(self) -> list[K]:
        """All keys, in order, in a new list."""
        keys: list[K] = []
        for leaf in self._leaves(self._root):
            keys.extend(leaf.keys)
        return keys

    def first_key(self) -> K | None:
        node = self._root
        while not node.leaf:
            node = node.items[0]
        return node.keys[0] if node.keys else None

    def last_key(self) -> K | None:
        node = self._root
        while not node.leaf:
            node = node.items[-1]
        return node.keys[-1] if node.keys else None

    def keys_before(self, bound: object) -> Iterator[K]:
        """The keys that are smaller, the last first; `bound` need not be a key, only comparable with one."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            if not node.leaf:
                stack.extend(node.items[: max(bisect_left(node.keys, bound), 1)])
                continue
            if self.meter is not None:
                self.meter.touched += len(node.keys)
            yield from reversed(node.keys[: bisect_left(node.keys, bound)])

    def _leaves(self, node: _Node) -> Iterator[_Node]:
        if node.leaf:
            if self.meter is not None:
                self.meter.touched += len(node.keys)
            yield node
        else:
            for child in node.items:
                yield from self._leaves(child)

    # -- deriving ----------------------------------------------------------------------------------------------

    def set(self, key: K, value: V) -> SortedMap[K, V]:
        """The map with this value of the key; None is not a value."""
        if value is None:
            raise TypeError(f"None is no value of a SortedMap (key {key!r})")
        node, path = self._root, _NO_WAY
        if not node.leaf or self.meter is not None:  # most maps have but one node
            node, path = self._leaf_of(key)
        keys, values, length = node.keys, [*node.items], self._len
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            values[at] = value
        else:
            values.insert(at, value)
            longer = [*keys]  # a list in between is copied faster than two parts are put together
            longer.insert(at, key)
            keys, length = tuple(longer), length + 1
            if len(longer) > FANOUT:
                return self._grown(path, keys, tuple(values))
        node = _Node(keys, tuple(values), True)
        return SortedMap(_with_leaf(path, node) if path else node, length, self.meter)

    def _grown(self, path: Way, keys: tuple[K, ...], values: tuple[V, ...]) -> SortedMap[K, V]:
        """The map with one more entry in the leaf at the end of the path, which has become too large."""
        parts = _split(keys, values, True)
        for parent, below in reversed(path):
            parts = _split(*_with_children(parent, below, 1, parts), False)
        return SortedMap(parts[0] if len(parts) == 1 else _parent(parts), self._len + 1, self.meter)

    def discard(self, key: K) -> SortedMap[K, V]:
        """The map without the key; the map itself if it has no such key."""
        node, path = self._root, _NO_WAY
        if not node.leaf or self.meter is not None:
            node, path = self._leaf_of(key)
        keys, items = node.keys, node.items
        at = bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return self
        if not path or len(keys) > _SPARSE:
            node = _Node(keys[:at] + keys[at + 1 :], items[:at] + items[at + 1 :], True)
            return SortedMap(_with_leaf(path, node) if path else node, self._len - 1, self.meter)
        root = self._drop(self._root, key)
        while root is not None and not root.leaf and len(root.items) == 1:
            root = root.items[0]
        return SortedMap(root or _EMPTY, self._len - 1, self.meter)

    def _leaf_of(self, key: K) -> tuple[_Node, Way]:
        """The leaf of the key, or where it belongs, and the path there."""
        node = self._root
        path: list[tuple[_Node, int]] = []
        while not node.leaf:
            # From 1 on: what is smaller than all belongs to the first child.
            at = bisect_right(node.keys, key, 1) - 1
            path.append((node, at))
            node = node.items[at]
        if self.meter is not None:
            self.meter.touched += len(node.keys) + 1 + sum(len(inner.keys) + 1 for inner, _ in path)
        return node, path

    def _drop(self, node: _Node, key: K) -> _Node | None:
        """The node without the key, which it contains; None when it would be empty."""
        if self.meter is not None:
            self.meter.touched += len(node.keys) + 1
        if node.leaf:
            if len(node.keys) == 1:
                return None
            at = bisect_left(node.keys, key)
            return _Node(node.keys[:at] + node.keys[at + 1 :], node.items[:at] + node.items[at + 1 :], True)
        at = max(bisect_right(node.keys, key) - 1, 0)
        child = self._drop(node.items[at], key)
        if child is None:
            keys, items = _with_children(node, at, 1, [])
        elif len(child.keys) >= _SPARSE or len(node.items) == 1:
            keys, items = _with_children(node, at, 1, [child])
        else:
            last = at + 1 == len(node.items)
            left, right = (node.items[at - 1], child) if last else (child, node.items[at + 1])
            merged = _split(left.keys + right.keys, left.items + right.items, left.leaf)
            keys, items = _with_children(node, at - last, 2, merged)
        return _Node(keys, items, False) if items else None

    # -- value -------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether the items are equal; the division into nodes does not matter."""
        if not isinstance(other, SortedMap):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self.items(), other.items(), strict=True))

    def __ne__(self, other: object) -> bool:
        """Defined because the method of a struct would compare the division into nodes."""
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SortedMap({dict(self.items())!r})"


def _with_leaf(path: Way, node: _Node) -> _Node:
    """The root, with `node` where the path ends: what mostly happens in larger maps, for few nodes are split."""
    for parent, at in reversed(path):
        keys, children = parent.keys, [*parent.items]
        children[at] = node
        if keys[at] is not node.keys[0]:
            keys = (*keys[:at], node.keys[0], *keys[at + 1 :])
        node = _Node(keys, tuple(children), False)
    return node


def _leaf(entries: Sequence[tuple[Any, Any]]) -> _Node:
    keys, values = zip(*entries, strict=True)
    return _Node(keys, values, True)


def _parent(children: list[_Node]) -> _Node:
    return _Node(tuple(child.keys[0] for child in children), tuple(children), False)


def _split(keys: tuple[Any, ...], items: tuple[Any, ...], leaf: bool) -> list[_Node]:
    if len(keys) <= FANOUT:
        return [_Node(keys, items, leaf)]
    half = len(keys) // 2
    return [_Node(keys[:half], items[:half], leaf), _Node(keys[half:], items[half:], leaf)]


def _with_children(node: _Node, at: int, count: int, parts: list[_Node]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Keys and children of `node` with `count` children from `at` on replaced by `parts`."""
    if len(parts) == count == 1 and parts[0].keys[0] is node.keys[at]:
        return node.keys, (*node.items[:at], parts[0], *node.items[at + 1 :])  # what mostly happens
    keys = (*node.keys[:at], *(part.keys[0] for part in parts), *node.keys[at + count :])
    return keys, (*node.items[:at], *parts, *node.items[at + count :])
