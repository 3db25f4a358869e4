"""What a person writes to filter a list, as the filter of the store.

    hp.lr < 0.01 and (validation.loss.min <= 0.3 or user = ada) and tags contains night

Columns are those of the filter language (`store.search_filter`): fields, `hp.<name>`, `<group>.<metric>.<last|min|max|mean>`. A
column or a value with spaces or signs is quoted. `and` binds more closely than `or`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.store.search_filter import (
    MAX_DEPTH,
    MAX_FIELDS,
    Column,
    Comparison,
    Field,
    Group,
    Kind,
    Operator,
    Table,
    column_of,
    comparison_of,
)

MAX_LENGTH = 4_000
"""Characters: proxies between a browser and the master cut longer addresses."""

EXAMPLE = "hp.lr < 0.01 and validation.loss.min < 0.3"

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*")|(?P<sign><=|>=|!=|==|[<>=()])|(?P<word>[^\s<>=!()"]+)|(?P<rest>\S))""", re.VERBOSE
)
_SIGNS = {
    "=": Operator.EQUAL,
    "==": Operator.EQUAL,
    "!=": Operator.NOT_EQUAL,
    "<": Operator.LESS,
    "<=": Operator.AT_MOST,
    ">": Operator.GREATER,
    ">=": Operator.AT_LEAST,
}
_TEXT = (Kind.TEXT, Kind.LABELS, Kind.STATE, Kind.DATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    quoted: bool
    at: int
    """Position of its first character, from 1."""

    def is_word(self, word: str) -> bool:
        return not self.quoted and self.text.lower() == word


def parse_conditions(text: str, table: Table, key: str) -> Group:
    """Empty text fits everything. Raises `InvalidInput`, which begins with `key` and says where."""
    if len(text) > MAX_LENGTH:
        raise InvalidInput(f"{key}: has {len(text)} characters, and the limit is {MAX_LENGTH}")
    tokens = tuple(_tokens(text, key))
    if not tokens:
        return Group(any=False, parts=())
    return _Parser(tokens, table, key).whole()


def _tokens(text: str, key: str) -> Iterator[_Token]:
    at = 0
    while (found := _TOKEN.match(text, at)) is not None:
        place, at = found.start(found.lastgroup or 0), found.end()
        if found["rest"] is not None:
            raise InvalidInput(f"{key}: the quotation mark at character {place + 1} is not closed; {_HELP}")
        quoted = found["quoted"]
        plain = quoted[1:-1] if quoted is not None else found["sign"] or found["word"]
        yield _Token(text=plain, quoted=quoted is not None, at=place + 1)


_HELP = f"write conditions such as {EXAMPLE}"


class _Parser:
    def __init__(self, tokens: Sequence[_Token], table: Table, key: str) -> None:
        self._tokens = tokens
        self._table = table
        self._key = key
        self._next = 0
        self._fields = 0

    def whole(self) -> Group:
        found = self._any(1)
        if self._next < len(self._tokens):
            raise self._error("'and', 'or' or the end")
        return found if isinstance(found, Group) else Group(any=False, parts=(found,))

    def _any(self, depth: int) -> Group | Comparison:
        return self._joined("or", lambda: self._joined("and", lambda: self._one(depth)))

    def _joined(self, word: str, part: Any) -> Group | Comparison:
        parts = [part()]
        while self._take_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Group(any=word == "or", parts=tuple(parts))

    def _one(self, depth: int) -> Group | Comparison:
        if not self._take_sign("("):
            return self._comparison()
        if depth >= MAX_DEPTH:
            raise InvalidInput(f"{self._key}: parentheses are nested deeper than {MAX_DEPTH} levels")
        found = self._any(depth + 1)
        if not self._take_sign(")"):
            raise self._error("a closing parenthesis")
        return found

    def _comparison(self) -> Comparison:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise InvalidInput(f"{self._key}: has more than {MAX_FIELDS} conditions")
        name = self._take_text("a column")
        column = column_of(name.text, self._table, f"{self._key}, character {name.at}")
        operator = self._operator(column)
        at = f"{self._key}, {name.text[:80]}"
        if operator in (Operator.IS_EMPTY, Operator.NOT_EMPTY):
            return comparison_of(column, operator.value, None, at)
        value = self._take_text(f"a value to compare {name.text[:80]} with")
        return comparison_of(column, operator.value, _value(value, column), at)

    def _operator(self, column: Column) -> Operator:
        if self._next < len(self._tokens) and not self._tokens[self._next].quoted:
            found = _SIGNS.get(self._tokens[self._next].text)
            if found is not None:
                self._next += 1
                return found
        if self._take_word("contains"):
            return Operator.CONTAINS
        if self._take_word("not") and self._take_word("contains"):
            return Operator.NOT_CONTAINS
        if self._take_word("is"):
            absent = not self._take_word("not")
            if self._take_word("empty"):
                return Operator.IS_EMPTY if absent else Operator.NOT_EMPTY
        signs = ", ".join(sign for sign in _SIGNS if sign != "==")
        raise self._error(f"one of {signs}, 'contains', 'not contains', 'is empty' or 'is not empty'")

    # ------------------------------------------------------------------------------------------------------- tokens

    def _take_word(self, word: str) -> bool:
        return self._take(lambda token: token.is_word(word))

    def _take_sign(self, sign: str) -> bool:
        return self._take(lambda token: not token.quoted and token.text == sign)

    def _take(self, fits: Any) -> bool:
        if self._next >= len(self._tokens) or not fits(self._tokens[self._next]):
            return False
        self._next += 1
        return True

    def _take_text(self, what: str) -> _Token:
        token = self._tokens[self._next] if self._next < len(self._tokens) else None
        if token is None or (not token.quoted and token.text in (*_SIGNS, "(", ")")):
            raise self._error(what)
        self._next += 1
        return token

    def _error(self, wanted: str) -> InvalidInput:
        if self._next >= len(self._tokens):
            return InvalidInput(f"{self._key}: ends where {wanted} must follow; {_HELP}")
        token = self._tokens[self._next]
        return InvalidInput(f"{self._key}: '{token.text[:80]}' at character {token.at}: expected {wanted}; {_HELP}")


def _value(token: _Token, column: Column) -> float | str:
    """A number where it is one and the column may hold numbers."""
    if token.quoted or (isinstance(column, Field) and column.kind in _TEXT):
        return token.text
    try:
        number = float(token.text)
    except ValueError:
        return token.text
    return number if math.isfinite(number) else token.text
